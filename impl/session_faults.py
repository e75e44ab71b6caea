"""Known failures of sessions: rules of the session cache and the session controller as they were before their fix.

Each class replaces whole methods. Its docstring begins with the id of the pull request that fixed it; faults.py looks it up by
that id.
"""

from __future__ import annotations

from kvproof.impl.chunk_cache import ChunkCache
from kvproof.impl.page_moves import Pool
from kvproof.impl.request import Request, Session
from kvproof.impl.session import SessionController, SessionSlot, StreamingSessionCache


class CommittedLenAsProtectedLen(StreamingSessionCache):
    """F20070: a session turn's cache_protected_len is len(prefix), so C: more than the tree owns, and not whole pages."""

    def restore(self, slot: SessionSlot, req: Request) -> None:
        super().restore(slot, req)
        req.cache_protected_len = req.prefix_len


class RestoreClearsRow(StreamingSessionCache):
    """F20476: restoring takes the row out of the slot. A rejected turn that matches again falls through to the tree,
    overwrites the row it still holds, and its tree lock is dropped by nobody."""

    def restore(self, slot: SessionSlot, req: Request) -> None:
        super().restore(slot, req)
        slot.req_pool_idx = None


class LogprobCutsKey(StreamingSessionCache):
    """F20557: input logprobs from position 0 cut the match key to nothing, so the whole row is overwritten."""

    def match_key_len(self, req: Request) -> int:
        if req.logprob_start_len is None:
            return super().match_key_len(req)
        return min(super().match_key_len(req), req.logprob_start_len)

    def free_orphaned_tail(self, slot: SessionSlot, req: Request, prefix_len: int) -> None:
        if req.logprob_start_len is None:
            super().free_orphaned_tail(slot, req, prefix_len)


class NoTailFree(StreamingSessionCache):
    """F22862a: one token too many is kept back and nothing behind prefix_len is freed: overwritten pages are orphaned."""

    def inherited_len(self, slot: SessionSlot, key_len: int) -> int:
        return min(slot.kv_committed_len, max(key_len - 1, 0))

    def free_orphaned_tail(self, slot: SessionSlot, req: Request, prefix_len: int) -> None:
        pass


class TailFreeUnaligned(StreamingSessionCache):
    """F22862b: the tail free starts inside a page, and the allocator frees the whole page, committed tokens and all."""

    def orphan_start(self, prefix_len: int) -> int:
        return prefix_len


class LentSlotsCounted(StreamingSessionCache):
    """F22213: a slot whose row runs in a batch is counted as held, while its request is counted as uncached; so is the slot
    of a turn that ended in this step, because the turn still stands in the batch."""

    def session_held_pages(self, live_rows: set[int | None], pool: Pool = "full") -> int:
        return super().session_held_pages(set(), pool)

    def uncached_pages(self, live: list[Request], ended: list[Request], pool: Pool = "full") -> int:
        live_rows = {req.req_pool_idx for req in live}
        idle = {id(slot): slot for req in ended if (slot := self._slot_of(req)) and slot.req_pool_idx not in live_rows}
        return super().uncached_pages(live, ended, pool) + sum(self.held_pages(slot, pool) for slot in idle.values())

    def _slot_of(self, req: Request) -> SessionSlot | None:
        return None if req.session is None else self.slots.get(req.session.session_id)


class PreAbortedTurnRestores(StreamingSessionCache):
    """F21875b: a too-long turn, cut to one token, restores the slot all the same, overwrites its row and saves C = 1."""

    def detach_if_pre_aborted(self, req: Request) -> Session | None:
        return None

    def free_orphaned_tail(self, slot: SessionSlot, req: Request, prefix_len: int) -> None:
        if not req.is_too_long:
            super().free_orphaned_tail(slot, req, prefix_len)

    def ends_by_abort(self, req: Request) -> bool:
        return super().ends_by_abort(req) and not req.is_too_long


class AbortSavesPartialLengths(StreamingSessionCache):
    """F22790a: an n-th turn that is aborted mid-way saves its lengths as if it had succeeded."""

    def release_later_turn(self, session: Session, slot: SessionSlot, req: Request) -> None:
        self.save_slot(session, req)


class FirstAbortReturnsNothing(StreamingSessionCache):
    """F22790b: a first turn that is aborted mid-way has no slot, so its pages, its row and its tree lock are lost."""

    def release_first_turn(self, session: Session, req: Request) -> None:
        pass


class PreAbortedTurnStays(StreamingSessionCache):
    """F22790c: a too-long turn asks the tree but stays its session's turn, so that its end releases the slot."""

    def detach_if_pre_aborted(self, req: Request) -> Session | None:
        return None

    def find_active_slot(self, req: Request) -> SessionSlot | None:
        return None if req.is_too_long else super().find_active_slot(req)


class RetractCountsAsSuccess(StreamingSessionCache):
    """S0511a: a retract ends the turn as a success: it is trimmed, the marker clears and the checkpoint moves to the
    unfinished turn."""

    def retract_turn(self, session: Session, req: Request) -> None:
        self.trim_overshoot(req, len(req.origin_input_ids) + len(req.output_ids))
        session.finish_req(req)
        super().retract_turn(session, req)


class QueuedAbortKeepsMarker(StreamingSessionCache):
    """S0511b: the abort of a queued turn leaves the in-flight marker set: the session never takes a turn again."""

    def abort_queued_turn(self, session: Session, req: Request) -> None:
        turn = session.turn_in_flight
        super().abort_queued_turn(session, req)
        session.turn_in_flight = turn


class RowFreedBetweenChunks(StreamingSessionCache):
    """F17850: between two chunks the row goes back to the pool, and the next chunk takes one again: another request may get
    the row while the chunk in flight still reads it."""

    def stash_chunk(self, req: Request) -> None:
        super().stash_chunk(req)
        if req.req_pool_idx is not None:
            self.inner.rows.free(req.req_pool_idx)
            req.req_pool_idx = None


class TailGoesIntoSlot(StreamingSessionCache):
    """F21875c: the lengths are cut to the kept output, but the over-allocated tail goes into the slot untrimmed."""

    def trim_overshoot(self, req: Request, target: int) -> None:
        req.kv_committed_len = min(req.kv_committed_len, target)


class OvershootStays(StreamingSessionCache):
    """F22897: the overshoot of a finishing speculative round is not trimmed: the slot has KV of tokens that nobody kept."""

    def trim_overshoot(self, req: Request, target: int) -> None:
        super().trim_overshoot(req, max(target, req.kv_committed_len))


class LentFlag(StreamingSessionCache):
    """F22753: whether a slot is lent is a flag, set on restore and cleared on save; a turn that was matched and rejected leaves
    it set, so that the memory check counts its pages nowhere."""

    def __init__(self, inner: ChunkCache) -> None:
        super().__init__(inner)
        self._flagged: set[int] = set()

    def restore(self, slot: SessionSlot, req: Request) -> None:
        super().restore(slot, req)
        self._flagged.add(id(slot))

    def save_slot(self, session: Session, req: Request) -> None:
        super().save_slot(session, req)
        self._flagged.discard(id(self.slots[session.session_id]))

    def session_held_pages(self, live_rows: set[int | None], pool: Pool = "full") -> int:
        return sum(self.held_pages(slot, pool) for slot in self.slots.values() if id(slot) not in self._flagged)


class CloseUnderRunningTurn(SessionController):
    """F21875a: close frees the slot at once. The turn that runs on its row is left behind as an ordinary request."""

    def close(self, session: Session) -> None:
        turn = session.turn_in_flight
        session.turn_in_flight = None
        if turn is not None:
            turn.session = None
        self.release(session)


class CheckpointMovesAtCreate(SessionController):
    """F22790d: the checkpoint becomes the new turn's tokens when the turn is created, so an abort cannot go back."""

    def admit(self, session: Session, req: Request) -> None:
        super().admit(session, req)
        session.checkpoint_ids = list(req.origin_input_ids)


class BusySessionAdmits(SessionController):
    """F22790e: nobody asks whether a turn is in flight: a second one shares the row."""

    def refuses(self, session: Session) -> bool:
        return False
