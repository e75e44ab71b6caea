"""Who leaves the batch, when, and how: aborts at once, retracts of whoever has least to lose, and a window that is given back as
far as the next token does not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvproof.impl.decode import OUT_OF_MEMORY
from policies.broken import require, tap
from policies.page_counts import PageCounts
from policies.steps import Steps

if TYPE_CHECKING:
    from kvproof.impl.request import Request, Session
    from kvproof.impl.scheduler import Scheduler


class RetractsAndAborts:
    def __init__(self, scheduler: Scheduler, steps: Steps) -> None:
        self._scheduler, self._state, self._steps = scheduler, scheduler.state, steps
        self._page_counts = PageCounts(scheduler)
        self._cursor_before: dict[str, int] = {}
        self._retracted: list[Request] = []
        self._prepared: list[Request] = []
        self._is_chosen = False
        """Whether it is the scheduler that chooses who is retracted."""
        self._decode_steps = 0
        tap(scheduler, "abort", self._asked_to_abort)
        tap(scheduler, "retract", self._asked_to_retract)
        tap(scheduler.exits, "abort", self._abort)
        tap(scheduler.exits, "end", self._end)
        tap(scheduler.exits, "retract", self._retract)
        tap(scheduler.decoding, "retract", self._retract_from_decode)
        tap(scheduler.decoding, "prepare_round", self._prepare_round)
        tap(scheduler.decoding, "make_room", self._make_room)
        tap(scheduler.decoding, "retract_at_interval", self._retract_at_interval)
        tap(scheduler.state.reporter, "window", self._window)
        tap(scheduler.state.cache, "finish_turn", self._finish_turn)
        tap(scheduler.state.cache, "retract_turn", self._retract_turn)

    # -- aborts --

    def _asked_to_abort(self, inner: Callable[..., None], rid: str, *why: str) -> None:
        req = self._known(rid)
        waits = req is not None and req.is_live and self._steps.between_halves and self._steps.carries(req)
        inner(rid, *why)
        if req is not None:
            is_known = self._known(rid) is not None
            require(
                is_known == waits, f"{rid} is aborted, and {'continues' if is_known else 'its result is not awaited'}"
            )

    def _abort(self, inner: Callable[..., None], req: Request, reason: str) -> None:
        first = req.to_finish or reason
        if reason == OUT_OF_MEMORY:
            state = self._state
            require(not state.launched, f"{req.rid} is given up, and a result in flight may end it or another")
            least = state.chunked_req or state.running[0]
            require(req is least, f"{req.rid} is given up, and {least.rid} has less to lose")
            others = len(state.live_requests()) > 1 and any(one.output_ids for one in state.running)
            require(not others, f"{req.rid} is given up, and another could be sent back to the queue")
        inner(req, reason)
        told = self._scheduler.outcomes.get(req.rid)
        require(told is None or told.finished or told.reason == first, f"{req.rid} gets another reason than {first!r}")

    # -- retracts --

    def _asked_to_retract(self, inner: Callable[[str], None], rid: str) -> None:
        req = next((one for one in self._state.running if one.rid == rid), None)
        self._retracted, self._steps.given_time = [], req
        try:
            inner(rid)
        finally:
            self._steps.given_time = None
        others = [one.rid for one in self._retracted if one is not req]
        require(not others, f"{rid} is to go back to the queue, and {', '.join(others)} goes")
        require(req is None or not req.is_live, f"{rid} is to go back to the queue, and stays")

    def _retract_from_decode(self, inner: Callable[[Request], None], req: Request) -> None:
        state, config = self._state, self._state.config
        if self._is_chosen:
            least = min(map(_to_lose, filter(_has_output, state.running)))
            require(_to_lose(req) == least, f"{req.rid} goes back to the queue, and another has less to lose")
            require(len(state.live_requests()) > 1, f"{req.rid} goes back to the queue, and is the last")
        prepares = config.retract_after_prepare and not config.overlap and config.speculation == 0
        right = [req] if prepares and self._page_counts.has_next_round_of([req]) else []
        self._prepared = []
        inner(req)
        require(
            self._prepared == right, f"the next round of {req.rid} is {'not ' if right else ''}prepared before it goes"
        )

    def _prepare_round(self, inner: Callable[[Request], None], req: Request) -> None:
        inner(req)
        self._prepared.append(req)

    def _make_room(self, inner: Callable[[], bool]) -> bool:
        self._is_chosen = True
        has_room = inner()
        self._is_chosen = False
        running = self._state.running
        right = bool(running) and self._page_counts.has_next_round_of(running)
        require(has_room == right, f"the next round is {'begun' if has_room else 'put off'}, and {len(running)} run")
        return has_room

    def _retract_at_interval(self, inner: Callable[[], None]) -> None:
        self._decode_steps += 1
        interval, running = self._state.config.retract_interval, self._state.running
        due = interval is not None and self._decode_steps % interval == 0
        right = 1 if due and len(running) > 1 and any(map(_has_output, running)) else 0
        self._retracted, self._is_chosen = [], True
        inner()
        self._is_chosen = False
        require(len(self._retracted) == right, f"{len(self._retracted)} go back at the interval, and {right} should")

    def _retract(self, inner: Callable[[Request], None], req: Request) -> None:
        require(_has_output(req), f"{req.rid} goes back to the queue, and its prefill was in vain")
        lies_ready = self._steps.between_halves and self._steps.carries(req)
        require(not lies_ready, f"{req.rid} goes back to the queue, and the result that lies ready for it is lost")
        self._retracted.append(req)
        self._cursor_before[req.rid] = req.swa_evicted_seqlen
        inner(req)

    # -- windows --

    def _window(self, inner: Callable[[Request, int], None], req: Request, pre_len: int) -> None:
        computed = self._computed(req)
        require(
            pre_len <= computed,
            f"the window of {req.rid} moves as if {pre_len} tokens were computed, and {computed} are: a step in flight reads it",
        )
        inner(req, pre_len)

    def _end(self, inner: Callable[[Request], None], req: Request) -> None:
        self._cursor_before[req.rid] = req.swa_evicted_seqlen
        inner(req)

    def _finish_turn(self, inner: Callable[..., Any], session: Session, req: Request) -> None:
        kept = len(req.origin_input_ids) + min(len(req.output_ids), req.max_new_tokens)
        self._require_window_given_back(req, kept)
        inner(session, req)

    def _retract_turn(self, inner: Callable[..., Any], session: Session, req: Request) -> None:
        """Its last token is computed once more."""
        self._require_window_given_back(req, len(req.origin_input_ids) + len(req.output_ids) - 1)
        inner(session, req)

    def _require_window_given_back(self, req: Request, kept: int) -> None:
        """What the token behind those that are kept and computed does not look back to, one page apart."""
        config = self._state.config
        if self._state.window_pool is None:
            return
        unseen = max(min(self._computed(req), kept) - config.window - config.page_size, 0)
        unseen -= unseen % config.page_size
        before = self._cursor_before.pop(req.rid)
        right = unseen if unseen > max(before, req.cache_protected_len) else before
        seen = req.swa_evicted_seqlen
        require(
            seen == right, f"the window of {req.rid} is given back up to {seen}; its next token looks back to {right}"
        )

    def _computed(self, req: Request) -> int:
        """What a step in flight writes is not there yet."""
        for launched in self._state.launched:
            for chunk in launched.chunks:
                if chunk.req is req:
                    return chunk.prefix_len
        return req.kv_committed_len - sum(req in launched.decodes for launched in self._state.launched)

    def _known(self, rid: str) -> Request | None:
        return next((one for one in self._scheduler.known_requests() if one.rid == rid), None)


def _has_output(req: Request) -> bool:
    return bool(req.output_ids)


def _to_lose(req: Request) -> tuple[int, int, int]:
    """The least priority first; then the least output is lost, and then the longest input gives back the most."""
    return req.priority, len(req.output_ids), -len(req.origin_input_ids)
