"""The scheduler without its policy: what happens when is decided by whoever calls, one event at a time.

Everything that an event does (match, extend, the ends of a request, the memory check) is the scheduler's own code, and so is
what it brings with it: a detached turn is matched once more as an ordinary request, a deferred close is carried out when its
turn ends. No forward runs; the caller gives the token of each result.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.request import Request
from kvproof.impl.runner import FinishedLaunch
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.state import Chunk, Launched
from kvproof.impl.window_eviction import evict_window


class CannotBeDone(RuntimeError):
    """There is no way to bring this about on this implementation, in the state it is in."""


class HandDrivenScheduler(Scheduler):
    """Every request asks for as much output as its row holds: it ends when the caller ends it."""

    def __init__(self, config: EngineConfig, observer: Observer) -> None:
        self._requests: dict[str, Request] = {}
        super().__init__(dataclasses.replace(config, forward="none", retract_after_prepare=False), observer)
        self._in_flight: defaultdict[str, deque[Launched]] = defaultdict(deque)
        """Steps of one request each that were launched and have no result yet, the oldest first."""
        self._own_round_len = self.decoding.round_len

    # -- requests come in --

    def create_turn(self, session_id: str, rid: str, token_ids: list[int], *, too_long: bool, logprob: bool) -> None:
        """A turn whose whole input is `token_ids`; a too-long one has more tokens than fit, whatever they are."""
        self._require_session(session_id)
        checkpoint_len = len(self.state.controller.get(session_id).checkpoint_ids)
        new = token_ids[checkpoint_len:]
        if too_long:
            new = [1] * (self.config.max_input_len + 1)
        elif not new:
            raise CannotBeDone(
                f"a turn's input is its session's {checkpoint_len} tokens and at least one more, not {len(token_ids)}"
            )
        self.submit_turn(session_id, rid, new, self.config.row_width, logprob=logprob)

    def arrive(self, rid: str, token_ids: list[int]) -> None:
        self.submit(rid, token_ids, self.config.row_width)

    # -- prefill --

    def match(self, rid: str) -> None:
        self.begin_step()
        self.prefilling.match(self._queued(rid))

    def keep_chunk(self, rid: str) -> None:
        self.begin_step()
        self.prefilling.keep(self._between_chunks(rid))

    def prefill(self, rid: str, seq_len: int) -> None:
        """Run positions [prefix_len, seq_len) of a matched request, or of the one between two chunks."""
        state = self.state
        is_chunked = state.chunked_req is not None and state.chunked_req.rid == rid
        req = self._between_chunks(rid) if is_chunked else self._queued(rid)
        if not req.prefix_len < seq_len <= len(req.fill_ids):
            raise CannotBeDone(f"{rid} has tokens {req.prefix_len} to {len(req.fill_ids)} to run, none up to {seq_len}")
        if state.chunked_req not in (None, req) and seq_len < len(req.fill_ids):
            raise CannotBeDone("only one request at a time is cut into chunks")
        if not is_chunked:
            if not req.lent:
                state.prefixes.lock(req.last_node)
            state.waiting.remove(req)
            while self._in_flight[rid]:  # what was launched before it came back brings nothing any more
                self._landed(req)
        chunk = self.prefilling.extend(req, seq_len)
        self._launched_for(req, [chunk], [])
        if chunk.is_last:
            state.running.append(req)
        else:
            self.prefilling.count_chunk(req)

    def insert(self, rid: str) -> None:
        """Hand the prompt, or the chunk, to the tree."""
        req = self._live(rid)
        if req is self.state.chunked_req:
            self.keep_chunk(rid)
            return
        if req.kv_committed_len > len(req.fill_ids) and not self.config.overlap:
            raise CannotBeDone(f"only what was prefilled is inserted before the end, and {rid} has decoded since")
        self.prefilling.insert(req)

    # -- decode --

    def decode(self, rid: str, allocated_len: int | None = None) -> None:
        """Prepare the next step. How far ahead a round of speculation v2 reserves is policy: to `allocated_len`, or its own."""
        self.begin_step()
        req = self._running(rid)
        if self.config.speculation == 2:
            own = self._own_round_len
            self.decoding.round_len = own if allocated_len is None else allocated_len - req.kv_committed_len
        self.decoding.prepare_round(req)
        self._launched_for(req, [], [req])

    def result(self, rid: str, tokens: list[int]) -> None:
        """The oldest result that is due comes: with no token, that of a chunk in the middle of the input."""
        due = self._in_flight[rid]
        if len(tokens) > 1 and self.config.speculation != 2:
            raise CannotBeDone(f"a result of it is one token, not {len(tokens)}: it does not speculate")
        if not due and not self.config.overlap:
            raise CannotBeDone(f"steps do not overlap: no result comes for {rid}, which does not run")
        req = self._known(rid)
        while tokens and len(due) > 1 and _is_in_the_middle(due[0]):
            self._landed(req)  # the result of a chunk in the middle brings nothing, so its event may be left out
            req.is_chunked -= req.is_chunked > 0
        if not due:
            self.results.late_result(req, len(tokens))
        elif not req.is_live or (due[0].chunks and req.is_chunked):
            self._process(req, self._landed(req), tokens)
        else:  # what follows a result, an insert or the end, is for the caller to tell
            if self._landed(req).decodes:
                self.results.resolve(req, len(tokens))
            self.results.note_result(req, tokens)

    def _process(self, req: Request, step: Launched, tokens: list[int]) -> None:
        req.results_due += 1  # which it takes away itself
        for chunk in step.chunks:
            self.results.chunk_result(chunk, tokens)
        for decoding in step.decodes:
            self.results.round_result(decoding, tokens)

    def verify(self, rid: str, tokens: list[int]) -> None:
        """A round of speculation v1, from its draft pages to its result."""
        self.begin_step()
        req = self._running(rid)
        [draft_pages] = self.decoding.prepare([req]).draft_pages
        req.results_due += 1
        self.results.verified_round(req, tokens, draft_pages)

    def evict_window(self, rid: str, pre_len: int) -> None:
        evict_window(self.state, self._live(rid), pre_len)

    # -- the end --

    def retract(self, rid: str) -> None:
        req = self._running(rid)
        keeps_some = self.config.overlap and len(req.origin_input_ids) > 1
        if not req.output_ids and not keeps_some:  # only the forced retract takes one of which nothing would be kept
            self.decoding.retract_at_interval()
            return
        while self._in_flight[rid] and not self.config.overlap:
            self._landed(req)  # the step that was prepared for it never runs
        self.exits.retract(req)

    def end(self, rid: str, finished_len: int | None = None) -> None:
        """End a live request as its state has it: with success, or by abort if it was to be aborted.

        `finished_len`: how much of its output is kept; all of it if left out.
        """
        req = self._live(rid)
        if finished_len is not None:
            req.max_new_tokens = finished_len
        self.exits.end(req)

    def abort(self, rid: str, reason: str = "aborted") -> None:
        live = [req for req in self.state.live_requests() if req.rid == rid]
        self.exits.abort(live[0] if live else self._queued(rid), reason)

    def close_session(self, session_id: str) -> None:
        self._require_session(session_id)
        super().close_session(session_id)

    # -- what is in flight --

    def _launched_for(self, req: Request, chunks: list[Chunk], decodes: list[Request]) -> None:
        step = Launched(FinishedLaunch([]), chunks, decodes)  # the tokens are the caller's
        req.results_due += 1
        self._in_flight[req.rid].append(step)
        self.state.launched.append(step)

    def _landed(self, req: Request) -> Launched:
        step = self._in_flight[req.rid].popleft()
        req.results_due -= 1
        self.state.launched.remove(step)
        return step

    # -- who is where --

    def _new_request(self, rid: str, token_ids: list[int], max_new_tokens: int, priority: int) -> Request:
        self._requests[rid] = super()._new_request(rid, token_ids, max_new_tokens, priority)
        return self._requests[rid]

    def _limit_output(self, req: Request) -> None:
        """It ends when the caller ends it, not before."""

    def _known(self, rid: str) -> Request:
        if rid not in self._requests:
            raise CannotBeDone(f"no request {rid} ever came")
        return self._requests[rid]

    def _queued(self, rid: str) -> Request:
        outcome = self.outcomes.get(rid)
        if outcome is not None:
            raise CannotBeDone(f"{rid} is over ({outcome.reason or 'finished'}) and does not come back")
        return self._one_of(list(self.state.waiting), rid, "in the queue")

    def _running(self, rid: str) -> Request:
        return self._one_of(self.state.running, rid, "in the decode batch")

    def _live(self, rid: str) -> Request:
        return self._one_of(self.state.live_requests(), rid, "in the batch")

    def _between_chunks(self, rid: str) -> Request:
        return self._one_of(
            [] if self.state.chunked_req is None else [self.state.chunked_req], rid, "between two chunks"
        )

    def _one_of(self, requests: list[Request], rid: str, where: str) -> Request:
        found = [req for req in requests if req.rid == rid]
        if not found:
            raise CannotBeDone(f"{rid} is not {where}")
        return found[0]

    def _require_session(self, session_id: str) -> None:
        if session_id not in self.state.controller.sessions:
            raise CannotBeDone(f"session {session_id} is not open")


def _is_in_the_middle(step: Launched) -> bool:
    return any(not chunk.is_last for chunk in step.chunks)
