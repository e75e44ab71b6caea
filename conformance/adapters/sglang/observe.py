"""Reads what can be seen of sessions, slots, requests and rows, in the field names of the trace. It changes nothing.

Reading must not disturb: no property with a side effect is touched, lengths are host-side integers, and page ids of a GPU
arrive later (`live/page_ids.py`).

What is read of every running request at every step is read as plain tuples, in the order of `TURN` or `SESSION`: naming
the values is left to whoever writes them.
"""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.live.readings import SESSION, TURN, Values, named
from kvproof.conformance.adapters.row_pages import RowPages, full_pool
from kvproof.conformance.adapters.sglang.header import speculation_of
from kvproof.conformance.adapters.sglang.releases import Release, layers_of
from kvproof.conformance.adapters.sglang.speculation_v2 import Rounds
from kvproof.conformance.adapters.sglang.window_pool import window_pool


class Observer(RowPages):
    def __init__(self, release: Release, scheduler: Any, rounds: Rounds | None = None) -> None:
        super().__init__(scheduler, has_window=scheduler.is_hybrid_swa, device=str(scheduler.device))
        self._release = release
        self._lengths = release.lengths if rounds is None else rounds.lengths
        self.keys_are_pairs = self.has_drafts = speculation_of(scheduler) > 0
        _, self._sessions = layers_of(scheduler.tree_cache)
        # session id -> the turn that ran last on the session's slot
        self._borrowers: dict[str, Any] = {}
        self._open_sessions: dict[str, Any] = scheduler.session_controller.sessions
        self.window_pool = window_pool(release, scheduler, self.page_ids)
        # session id -> (the node that names its last turn, that turn's tokens when the node was first seen)
        self._checkpoints: dict[str, tuple[Any, int]] = {}

    # -- sessions and their slots --

    def session(self, session: Any, *, turn_ended: bool) -> Values:
        """The session, and its slot if it holds a row. `turn_ended`: a turn has just ended, or the session was closed."""
        return named(SESSION, self.session_reading(session, turn_ended=turn_ended))

    def session_reading(self, session: Any, *, turn_ended: bool = False) -> tuple[Any, ...]:
        """The values of `SESSION`."""
        release, session_id = self._release, session.session_id
        exists = session_id in self._open_sessions
        closing = exists and release.closing is not None and getattr(session, release.closing)
        marker = None if release.marker is None else getattr(session, release.marker)
        may_see = exists and (turn_ended or release.checkpoint_is_stable)
        checkpoint = self._checkpoint_len(session) if may_see else None
        slot = self.held_slot(session_id)
        if slot is None:
            return (marker, closing, checkpoint, False, None, None, None, None)
        if release.one_record and self._is_lent(session_id, slot):
            return (marker, closing, checkpoint, None, None, None, None, None)
        return (marker, closing, checkpoint, True, *release.lengths_of(slot), self._cursor(slot))

    def sessions_of(self, reqs: list[Any]) -> list[tuple[str, tuple[Any, ...]] | None]:
        """For each request its session's id and reading, or None for an ordinary request."""
        return [
            (session.session_id, self.session_reading(session)) if (session := session_of(req)) is not None else None
            for req in reqs
        ]

    def held_slot(self, session_id: str) -> Any | None:
        slot = self._sessions.slots.get(session_id) if self._sessions is not None else None
        return slot if slot is not None and self._release.holds_row(slot) else None

    def borrows(self, req: Any) -> None:
        """This turn of a session was matched or got a row: from now on it may run on its session's record."""
        session = session_of(req)
        if session is not None:
            self._borrowers[session.session_id] = req

    def _is_lent(self, session_id: str, slot: Any) -> bool:
        borrower = self._borrowers.get(session_id)
        return borrower is not None and borrower.kv is slot.kv

    def _checkpoint_len(self, session: Any) -> int:
        """Tokens of the turn that the session's node names, as they were when that turn ended.

        The node refers to a live request: retracted and queued again, it would grow under our eyes.
        """
        node = next(iter(session.req_nodes.values()), None)
        if node is None:
            return 0
        known = self._checkpoints.get(session.session_id)
        if known is None or known[0] is not node or not self._release.checkpoint_is_stable:
            kept = node.req.output_ids[: node.req.sampling_params.max_new_tokens]
            known = (node, len(node.req.origin_input_ids) + len(kept))
            self._checkpoints[session.session_id] = known
        return known[1]

    # -- requests and their rows --

    def lengths(self, req: Any) -> Values:
        seen = named(TURN, self._lengths([req])[0])
        if self.has_window:
            seen["swa_evicted_seqlen"] = self._release.window_cursor(req)
        return seen

    def _cursor(self, slot: Any) -> int | None:
        return self._release.window_cursor(slot) if self.has_window else None

    def lengths_after_retract(self, req: Any) -> Values:
        seen = self.lengths(req)
        if not self._release.retract_clears_protected_len:
            del seen["cache_protected_len"]
        return seen

    def prefix_len(self, req: Any) -> int:
        return self._release.prefix_len(req)

    def runs_on_slot_row(self, req: Any) -> bool:
        slot = self.held_slot(req.session.session_id) if session_of(req) else None
        return slot is not None and self._release.row(req) == self._release.row(slot)

    def free_pages(self) -> list[int]:
        """Every free page of the full-attention pool."""
        return self._release.free_pages(full_pool(self._scheduler.token_to_kv_pool_allocator))

    def free_window_pages(self) -> list[int] | None:
        """Every free page of the window pool, if the trace names its pages."""
        return self._release.free_pages(self.window_pool.allocator) if self.window_pool is not None else None


def session_of(req: Any) -> Any | None:
    """The streaming session that a request belongs to now; a request can lose it on its way."""
    return req.session if req.session is not None and req.session.streaming else None
