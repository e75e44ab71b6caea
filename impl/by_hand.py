"""The scheduler without its policy: what happens when is decided by whoever calls, one event at a time.

Everything that an event does (match, extend, the ends of a request, the memory check) is the scheduler's own code, and so is
what it brings with it: a detached turn is matched once more as an ordinary request, a deferred close is carried out when its
turn ends. No forward runs; the caller gives the token of each result.
"""

from __future__ import annotations

import dataclasses

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.request import Request
from kvproof.impl.scheduler import Scheduler

MOST_OUTPUT = 1
"""Asked for by every request, and never looked at: a request ends when it is told to."""


class CannotBeDone(RuntimeError):
    """There is no way to bring this about on this implementation, in the state it is in."""


class HandDrivenScheduler(Scheduler):
    def __init__(self, config: EngineConfig, observer: Observer) -> None:
        super().__init__(dataclasses.replace(config, forward="none", retract_after_prepare=False), observer)

    # -- requests come in --

    def create_turn(self, session_id: str, rid: str, token_ids: list[int], *, too_long: bool, logprob: bool) -> None:
        """A turn whose whole input is `token_ids`; a too-long one has more tokens than fit, whatever they are."""
        self._require_session(session_id)
        checkpoint_len = len(self.controller.get(session_id).checkpoint_ids)
        new = token_ids[checkpoint_len:]
        if too_long:
            new = [1] * (self.config.max_input_len + 1)
        elif not new:
            raise CannotBeDone(
                f"a turn's input is its session's {checkpoint_len} tokens and at least one more, not {len(token_ids)}"
            )
        self.submit_turn(session_id, rid, new, MOST_OUTPUT, logprob=logprob)

    def arrive(self, rid: str, token_ids: list[int]) -> None:
        self.submit(rid, token_ids, MOST_OUTPUT)

    # -- prefill --

    def match(self, rid: str) -> None:
        self._begin_step()
        self._match(self._queued(rid))

    def keep_chunk(self, rid: str) -> None:
        self._begin_step()
        self._between_chunks(rid)
        self._chunk_is_kept = False
        self._keep_chunk()

    def prefill(self, rid: str, seq_len: int) -> None:
        """Run positions [prefix_len, seq_len) of a matched request, or of the one between two chunks."""
        if self.chunked_req is not None and self.chunked_req.rid == rid:
            req, shared = self.chunked_req, None
        else:
            req = self._queued(rid)
            shared = None if req.lent else self._pages_of(req.prefix_len, req)
        if not req.prefix_len < seq_len <= len(req.fill_ids):
            raise CannotBeDone(f"{rid} has tokens {req.prefix_len} to {len(req.fill_ids)} to run, none up to {seq_len}")
        if self.chunked_req not in (None, req) and seq_len < len(req.fill_ids):
            raise CannotBeDone("only one request at a time is cut into chunks")
        if req is not self.chunked_req:
            if not req.lent and req.last_node is not None:
                self.tree.inc_lock_ref(req.last_node)
            self.waiting.remove(req)
        chunk = self._extend(req, seq_len, shared)
        if chunk.is_last:
            self.running.append(req)

    def insert(self, rid: str) -> None:
        """Hand the prompt, or the chunk, to the tree."""
        req = self._live(rid)
        if req is self.chunked_req:
            self.keep_chunk(rid)
            return
        if req.kv_committed_len > len(req.fill_ids):
            raise CannotBeDone(f"only what was prefilled is inserted before the end, and {rid} has decoded since")
        self._insert(req)

    # -- decode --

    def decode(self, rid: str) -> None:
        self._begin_step()
        self._prepare_decode(self._running(rid))

    def result(self, rid: str, token: int) -> None:
        if rid not in (req.rid for req in self.running):
            raise CannotBeDone(f"steps do not overlap: no result comes for {rid}, which does not run")
        self._note_result(self._running(rid), token)

    # -- the end --

    def retract(self, rid: str) -> None:
        self._retract(self._running(rid))

    def end(self, rid: str) -> None:
        """End a live request as its state has it: with success, or by abort if it was to be aborted."""
        self._end(self._live(rid))

    def abort(self, rid: str, reason: str = "aborted") -> None:
        live = [req for req in self._live_requests() if req.rid == rid]
        if live:
            live[0].to_finish = live[0].to_finish or reason
            self._end(live[0])
        else:
            queued = self._queued(rid)
            queued.to_finish = queued.to_finish or reason
            self._abort_queued(queued)

    def close_session(self, session_id: str) -> None:
        self._require_session(session_id)
        super().close_session(session_id)

    # -- who is where --

    def _queued(self, rid: str) -> Request:
        outcome = self.outcomes.get(rid)
        if outcome is not None:
            raise CannotBeDone(f"{rid} is over ({outcome.reason or 'finished'}) and does not come back")
        return self._one_of(list(self.waiting), rid, "in the queue")

    def _running(self, rid: str) -> Request:
        return self._one_of(self.running, rid, "in the decode batch")

    def _live(self, rid: str) -> Request:
        return self._one_of(self._live_requests(), rid, "in the batch")

    def _between_chunks(self, rid: str) -> Request:
        return self._one_of([] if self.chunked_req is None else [self.chunked_req], rid, "between two chunks")

    def _one_of(self, requests: list[Request], rid: str, where: str) -> Request:
        found = [req for req in requests if req.rid == rid]
        if not found:
            raise CannotBeDone(f"{rid} is not {where}")
        return found[0]

    def _require_session(self, session_id: str) -> None:
        if session_id not in self.controller.sessions:
            raise CannotBeDone(f"session {session_id} is not open")
