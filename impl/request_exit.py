"""The ways out: how a request ends or goes back to the queue, and what becomes of its session. There are no others."""

from __future__ import annotations

from kvproof.impl.request import Request, Session
from kvproof.impl.state import EngineState, Outcome
from kvproof.impl.window_eviction import computed_len, evict_window


class RequestExit:
    def __init__(self, state: EngineState) -> None:
        self.state = state

    def end(self, req: Request) -> None:
        """The one way out for a request that has run: with success, or by abort if it was to be aborted."""
        state = self.state
        self._leave_batch(req)
        state.ended_in_step.append(req)
        session = req.session
        if session is None:
            inserted = state.prefixes.cache_finished_req(req, is_insert=True)
            req.cut_output()
            state.reporter.finish_ordinary(req, inserted)
        elif state.cache.ends_by_abort(req):
            state.cache.abort_turn(session, req)
            state.reporter.abort(session, req)
        else:
            req.cut_output()
            evict_window(state, req, self.kept_len(req))
            state.cache.finish_turn(session, req)
            state.reporter.finish_turn(session, req)
        self._is_over(req, session)

    def kept_len(self, req: Request) -> int:
        """Tokens of a turn that ends whose KV exists and stays: the window of the next turn begins behind these, not behind a
        round's overshoot."""
        return min(computed_len(self.state, req), len(req.origin_input_ids) + len(req.output_ids))

    def abort(self, req: Request, reason: str) -> None:
        """End a request without success, in the queue or in the batch."""
        req.to_finish = req.to_finish or reason
        if req.is_live:
            self.end(req)
        else:
            self.abort_queued(req)

    def abort_queued(self, req: Request) -> None:
        self.state.waiting.remove(req)
        session = req.session
        if session is not None:
            self.state.cache.abort_queued_turn(session, req)
        self.state.reporter.abort(session, req)
        self._is_over(req, session)

    def retract(self, req: Request) -> None:
        """Back to the queue. What a launched step still brings for it will come too late."""
        state = self.state
        self._leave_batch(req)
        if req.session is not None:
            # Its last token is computed once more when it comes back, whether or not a forward has computed it already.
            evict_window(state, req, min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1))
            state.cache.retract_turn(req.session, req)
        else:
            state.prefixes.cache_finished_req(req, is_insert=False)
            req.reset_for_retract()
        state.reporter.retract(req)
        state.waiting.append(req)

    def close_if_due(self, session: Session) -> None:
        if self.state.controller.must_close_now(session):
            row = self.state.slot_row(session)
            self.state.controller.release(session)
            self.state.reporter.close(session, row)

    def _leave_batch(self, req: Request) -> None:
        req.is_live = False
        if req is self.state.chunked_req:
            self.state.chunked_req = None
        else:
            self.state.running.remove(req)

    def _is_over(self, req: Request, session: Session | None) -> None:
        self.state.outcomes[req.rid] = Outcome(req.to_finish is None, tuple(req.output_ids), req.to_finish)
        if session is not None:
            self.close_if_due(session)
