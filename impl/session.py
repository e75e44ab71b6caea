"""Streaming sessions: the KV of a conversation stays in its slot between turns, and the next turn runs on the slot's row.

`SessionController` keeps the protocol: one turn at a time, the checkpoint, closing. `SessionSlot` and `StreamingSessionCache`
know rows and lengths. All lengths are in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvproof.impl.chunk_cache import ChunkCache, ceil_align, prefilled_len
from kvproof.impl.page_moves import Pool
from kvproof.impl.radix import TreeNode
from kvproof.impl.request import TOO_LONG, Request, Session


@dataclass
class SessionSlot:
    """What a session keeps while no turn runs. While a turn borrows the row, the slot keeps its index (#20476)."""

    req_pool_idx: int | None = None
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    cache_protected_len: int = 0
    swa_evicted_seqlen: int = 0
    last_node: TreeNode | None = None
    """The tree node that the first turn locked; the lock is the slot's until the session is released."""

    @property
    def is_holding_kv(self) -> bool:
        return self.req_pool_idx is not None

    def save_from_req(self, req: Request, *, is_first: bool) -> None:
        self.req_pool_idx = req.req_pool_idx
        self.kv_committed_len = req.kv_committed_len
        self.kv_allocated_len = req.kv_allocated_len
        self.swa_evicted_seqlen = req.swa_evicted_seqlen
        if is_first:
            self.cache_protected_len = req.cache_protected_len
            self.last_node = req.last_node
        req.req_pool_idx = None
        req.last_node = None

    def restore_to_req(self, req: Request) -> None:
        req.req_pool_idx = self.req_pool_idx
        req.kv_committed_len = self.kv_committed_len
        req.kv_allocated_len = self.kv_allocated_len
        req.cache_protected_len = self.cache_protected_len
        req.swa_evicted_seqlen = self.swa_evicted_seqlen
        req.last_node = None
        req.lent = True


class StreamingSessionCache:
    """Saves and restores session slots on top of the cache of ordinary requests."""

    def __init__(self, inner: ChunkCache) -> None:
        self.inner = inner
        self.page_size = inner.page_size
        self.slots: dict[str, SessionSlot] = {}

    # -- a turn comes in --

    def match_prefix(self, req: Request) -> Session | None:
        """Find the KV that the turn can reuse: the slot's, or else the tree's.

        Repeatable: a request that the scheduler rejects is matched again. Returns the session that the turn was detached
        from, if it was.
        """
        req.init_next_round_input()
        detached_from = self.detach_if_pre_aborted(req)
        slot = self.find_active_slot(req)
        if slot is None:
            self.inner.match_prefix(req, self.match_key_len(req))
        else:
            self.restore(slot, req)
        return detached_from

    def detach_if_pre_aborted(self, req: Request) -> Session | None:
        """A turn that will be aborted unrun leaves a session that holds a slot, before it can touch the slot (#22790)."""
        session = req.session
        if session is None or not req.is_too_long or session.session_id not in self.slots:
            return None
        session.abort_req()
        req.session = None
        return session

    def find_active_slot(self, req: Request) -> SessionSlot | None:
        if req.session is None:
            return None
        slot = self.slots.get(req.session.session_id)
        return slot if slot is not None and slot.is_holding_kv else None

    def match_key_len(self, req: Request) -> int:
        """One token is kept back, for its logits.

        A session turn never shortens this for input logprobs: the slot's KV is reused whatever is asked for (#20557).
        """
        return len(req.fill_ids) - 1

    def restore(self, slot: SessionSlot, req: Request) -> None:
        slot.restore_to_req(req)
        assert slot.req_pool_idx is not None  # find_active_slot returns no other
        prefix_len = self.inherited_len(slot, self.match_key_len(req))
        self.free_orphaned_tail(slot, req, prefix_len)
        req.prefix_indices = self.inner.rows.read(slot.req_pool_idx, 0, prefix_len)

    def inherited_len(self, slot: SessionSlot, key_len: int) -> int:
        """The KV that the turn inherits. It is shorter than what is committed only when a retracted turn comes back."""
        return min(slot.kv_committed_len, key_len)

    def free_orphaned_tail(self, slot: SessionSlot, req: Request, prefix_len: int) -> None:
        """The extend overwrites the row from prefix_len on: free the pages behind it that hold no kept token (#22862)."""
        assert slot.req_pool_idx is not None
        self.free_kv(slot.req_pool_idx, self.orphan_start(prefix_len), slot.kv_allocated_len)
        for holder in (slot, req):
            holder.kv_allocated_len = prefix_len
            holder.kv_committed_len = min(holder.kv_committed_len, prefix_len)
            holder.swa_evicted_seqlen = min(holder.swa_evicted_seqlen, prefix_len)

    def orphan_start(self, prefix_len: int) -> int:
        """The first position whose whole page lies behind `prefix_len`: a partly kept page stays (#22862)."""
        return ceil_align(prefix_len, self.page_size)

    # -- a turn is kept between steps --

    def stash_chunk(self, req: Request) -> None:
        """The next chunk continues where this one ended. The tree is not asked: the row already holds everything."""
        assert req.req_pool_idx is not None  # a chunk that ran has a row
        req.prefix_indices = self.inner.rows.read(req.req_pool_idx, 0, prefilled_len(req))

    def inserts_prompt(self, req: Request) -> bool:
        """The prompt of an ordinary request and of a session's first turn goes to the tree; later turns have the slot."""
        return req.session is None or req.session.session_id not in self.slots

    # -- a session turn ends or is interrupted --

    def finish_turn(self, session: Session, req: Request) -> None:
        """Success: trim what goes beyond the kept output, save the slot, advance the checkpoint."""
        self.trim_overshoot(req, len(req.origin_input_ids) + len(req.output_ids))
        self.save_slot(session, req)
        session.finish_req(req)

    def trim_overshoot(self, req: Request, target: int) -> None:
        """Free the whole pages behind T = O + F; no length goes beyond it (#22897), nor does the window's cursor (#22900)."""
        assert req.req_pool_idx is not None  # a turn that finishes has run
        self.free_kv(req.req_pool_idx, ceil_align(target, self.page_size), req.kv_allocated_len)
        req.kv_allocated_len = min(req.kv_allocated_len, target)
        req.kv_committed_len = min(req.kv_committed_len, target)
        req.swa_evicted_seqlen = min(req.swa_evicted_seqlen, target)

    def retract_turn(self, session: Session, req: Request) -> None:
        """The slot keeps the KV, so nothing is computed twice. The turn is still in flight, and it was no success."""
        self.save_slot(session, req)
        req.reset_for_retract()

    def ends_by_abort(self, req: Request) -> bool:
        return req.to_finish is not None

    def abort_turn(self, session: Session, req: Request) -> None:
        """An abort mid-way: what the row holds belongs to no successful turn, so all of it goes back (#22790).

        The next turn prefills from the checkpoint's tokens.
        """
        slot = self.slots.get(session.session_id)
        if slot is None:
            self.release_first_turn(session, req)
        else:
            self.release_later_turn(session, slot, req)
        req.req_pool_idx = None
        req.last_node = None
        session.abort_req()

    def release_first_turn(self, session: Session, req: Request) -> None:
        """A first turn has no slot yet: one is made of its state, the lock included, so that the release is the same."""
        self.save_slot(session, req)
        self.release_session(session.session_id)

    def release_later_turn(self, session: Session, slot: SessionSlot, req: Request) -> None:
        slot.kv_allocated_len = max(slot.kv_allocated_len, req.kv_allocated_len)
        self.release_session(session.session_id)

    def abort_queued_turn(self, session: Session, req: Request) -> None:
        """A turn that never ran leaves the slot alone. One that was retracted left its own KV there: all goes back."""
        if req.was_retracted:
            self.release_session(session.session_id)
        session.abort_req()

    def release_session(self, session_id: str) -> None:
        """Drop the tree lock, free row [R, A) as whole pages, return the row."""
        slot = self.slots.pop(session_id, None)
        if slot is None:
            return
        self.inner.unlock(slot.last_node)
        if slot.req_pool_idx is not None:
            self.free_kv(slot.req_pool_idx, slot.cache_protected_len, slot.kv_allocated_len)
            self.inner.rows.free(slot.req_pool_idx)

    # -- what slots hold --

    def session_held_pages(self, live_rows: set[int | None], pool: Pool = "full") -> int:
        """Pages that slots hold. A slot whose row is in a live batch is not counted: the request is (#22213)."""
        return sum(self.held_pages(slot, pool) for slot in self.slots.values() if slot.req_pool_idx not in live_rows)

    def uncached_pages(self, live: list[Request], ended: list[Request], pool: Pool = "full") -> int:
        """Pages of the batch beside what the tree owns. A request that ended in this step counts nowhere (#22213)."""
        return sum(self.own_pages(req, pool) for req in live)

    def held_pages(self, slot: SessionSlot, pool: Pool) -> int:
        return self.own_pages(slot, pool) if slot.is_holding_kv else 0

    def own_pages(self, holder: SessionSlot | Request, pool: Pool) -> int:
        """Pages behind row positions [R, A), of the window pool behind [max(R, E), A)."""
        evicted_len = holder.swa_evicted_seqlen if pool == "window" else 0
        start = max(holder.cache_protected_len, evicted_len)
        return (ceil_align(holder.kv_allocated_len, self.page_size) - start) // self.page_size

    def save_slot(self, session: Session, req: Request) -> None:
        is_first = session.session_id not in self.slots
        slot = self.slots.setdefault(session.session_id, SessionSlot())
        slot.save_from_req(req, is_first=is_first)

    def free_kv(self, row: int, start: int, end: int) -> None:
        self.inner.allocator.free(self.inner.rows.read(row, start, end))


class UnknownSession(KeyError):
    """A turn or a close names a session that is not open: open it first."""

    def __str__(self) -> str:
        return f"session {self.args[0]!r} is not open"


class SessionController:
    """Opens and closes sessions and builds each turn's input from the checkpoint."""

    def __init__(self, cache: StreamingSessionCache, max_input_len: int) -> None:
        self.sessions: dict[str, Session] = {}
        self.cache = cache
        self._max_input_len = max_input_len

    def get(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise UnknownSession(session_id)
        return self.sessions[session_id]

    def open(self, session_id: str) -> Session:
        if session_id in self.sessions:
            raise ValueError(f"session {session_id!r} is already open")
        session = Session(session_id)
        self.sessions[session_id] = session
        return session

    def create_req(self, session: Session, req: Request) -> bool:
        """Admit the turn, or refuse it without touching the session. `req` holds only the new tokens when it comes in."""
        req.origin_input_ids = session.checkpoint_ids + req.origin_input_ids
        if self.refuses(session):
            return False
        req.session = session
        if len(req.origin_input_ids) > self._max_input_len:
            req.abort_before_running(TOO_LONG)
        self.admit(session, req)
        return True

    def refuses(self, session: Session) -> bool:
        """One turn at a time: two would share the slot's row (#22790)."""
        return session.inflight

    def admit(self, session: Session, req: Request) -> None:
        session.turn_in_flight = req

    def close(self, session: Session) -> None:
        """Release the session, or wait for the turn that still uses its KV (#21875)."""
        if session.inflight:
            session.close_on_finish = True
        else:
            self.release(session)

    def release(self, session: Session) -> None:
        session.close_on_finish = False
        session.checkpoint_ids = []
        self.cache.release_session(session.session_id)
        del self.sessions[session.session_id]

    def must_close_now(self, session: Session) -> bool:
        return session.close_on_finish and not session.inflight
