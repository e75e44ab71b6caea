"""Reads what can be seen of sessions, slots, requests and rows, in the field names of the trace. It changes nothing.

Reading must not disturb: no property with a side effect is touched, and lengths are host-side integers.
"""

from __future__ import annotations

from typing import Any

from .releases import Release

Values = dict[str, Any]


class Observer:
    def __init__(self, release: Release, scheduler: Any) -> None:
        self._release = release
        self._scheduler = scheduler
        self._page_size: int = scheduler.page_size
        # session id -> (the node that names its last turn, that turn's tokens when the node was first seen)
        self._checkpoints: dict[str, tuple[Any, int]] = {}

    # -- sessions and their slots --

    def session(self, session: Any, *, turn_ended: bool) -> Values:
        """The session, and its slot if it holds a row. `turn_ended`: a turn has just ended, or the session was closed."""
        release, session_id = self._release, session.session_id
        exists = session_id in self._scheduler.session_controller.sessions
        seen: Values = {"closing": exists and release.closing is not None and getattr(session, release.closing)}
        if release.marker is not None:
            seen["inflight"] = getattr(session, release.marker)
        if exists and (turn_ended or release.checkpoint_is_stable):
            seen["checkpoint_len"] = self._checkpoint_len(session)
        slot = self.held_slot(session_id)
        seen["slot_held"] = slot is not None
        if slot is not None:
            seen["slot_kv_committed_len"] = slot.kv_committed_len
            seen["slot_kv_allocated_len"] = slot.kv_allocated_len
            seen["slot_cache_protected_len"] = slot.cache_protected_len
        return seen

    def held_slot(self, session_id: str) -> Any | None:
        slot = self._scheduler.tree_cache.slots.get(session_id)
        return slot if slot is not None and slot.is_holding_kv else None

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
        return {
            "kv_committed_len": req.kv_committed_len,
            "kv_allocated_len": req.kv_allocated_len,
            "cache_protected_len": req.cache_protected_len,
        }

    def lengths_after_retract(self, req: Any) -> Values:
        seen = self.lengths(req)
        if not self._release.retract_clears_protected_len:
            del seen["cache_protected_len"]
        return seen

    def turn(self, req: Any, *, prefix: bool) -> Values:
        seen = {**self.lengths(req), "output_len": len(req.output_ids)}
        if prefix:
            seen["prefix_len"] = len(req.prefix_indices)
        return seen

    def runs_on_slot_row(self, req: Any) -> bool:
        slot = self.held_slot(req.session.session_id) if session_of(req) else None
        return slot is not None and req.req_pool_idx == slot.req_pool_idx

    def pages_of_row(self, row: int, start: int, end: int) -> list[int]:
        """Pages behind the row positions [start, end) that begin in it: position `start` is the first of its page."""
        indices = self._scheduler.req_to_token_pool.req_to_token[row, start : end : self._page_size]
        return [index // self._page_size for index in indices.tolist()]

    def new_pages(self, row: int, start: int, end: int) -> list[int]:
        """Pages that an allocation for [start, end) opened: the page that holds `start - 1` was there before."""
        return self.pages_of_row(row, -(-start // self._page_size) * self._page_size, end)

    def pages_of_indices(self, indices: Any) -> list[int]:
        """Pages of one call's KV indices, each once, in the order in which they come."""
        return list(dict.fromkeys(index // self._page_size for index in indices.tolist()))


def session_of(req: Any) -> Any | None:
    """The streaming session that a request belongs to now; a request can lose it on its way."""
    return req.session if req.session is not None and req.session.streaming else None
