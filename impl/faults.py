"""The known failures, each as the faulty code path was: a class that puts the old rule back over the right one.

A fault replaces whole methods of the session cache or the session controller; nothing in those asks whether a fault is
on. The id is the pull request that fixed it. `assemble` builds the two classes with any set of faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvproof.impl.config import ConfigError
from kvproof.impl.request import Request
from kvproof.impl.session import Session, SessionController, SessionSlot, StreamingSessionCache


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

    def tail_start(self, length: int) -> int:
        return length


class LentSlotsCounted(StreamingSessionCache):
    """F22213: a slot whose row runs in a batch is counted as held, while its request is counted as uncached; so is the slot
    of a turn that ended in this step, because the turn still stands in the batch."""

    def session_held_pages(self, live_rows: set[int | None]) -> int:
        return super().session_held_pages(set())

    def uncached_pages(self, live: list[Request], ended: list[Request]) -> int:
        live_rows = {req.req_pool_idx for req in live}
        idle = {id(slot): slot for req in ended if (slot := self._slot_of(req)) and slot.req_pool_idx not in live_rows}
        return super().uncached_pages(live, ended) + sum(self.held_pages(slot) for slot in idle.values())

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
    """S0511a: a retract ends the turn as a success: the marker clears and the checkpoint moves to the unfinished turn."""

    def retract_turn(self, session: Session, req: Request) -> None:
        session.finish_req(req)
        super().retract_turn(session, req)


class QueuedAbortKeepsMarker(StreamingSessionCache):
    """S0511b: the abort of a queued turn leaves the in-flight marker set: the session never takes a turn again."""

    def abort_queued_turn(self, session: Session) -> None:
        turn = session.turn_in_flight
        super().abort_queued_turn(session)
        session.turn_in_flight = turn


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


@dataclass(frozen=True)
class Fault:
    deviation: type[StreamingSessionCache] | type[SessionController]

    @property
    def description(self) -> str:
        """The rule as it was, in one sentence."""
        _, _, text = (self.deviation.__doc__ or "").partition(": ")
        return " ".join(text.split())


FAULTS: dict[str, Fault] = {
    "F20070": Fault(CommittedLenAsProtectedLen),
    "F20476": Fault(RestoreClearsRow),
    "F20557": Fault(LogprobCutsKey),
    "F21875a": Fault(CloseUnderRunningTurn),
    "F21875b": Fault(PreAbortedTurnRestores),
    "F22213": Fault(LentSlotsCounted),
    "F22790a": Fault(AbortSavesPartialLengths),
    "F22790b": Fault(FirstAbortReturnsNothing),
    "F22790c": Fault(PreAbortedTurnStays),
    "F22790d": Fault(CheckpointMovesAtCreate),
    "F22790e": Fault(BusySessionAdmits),
    "F22862a": Fault(NoTailFree),
    "F22862b": Fault(TailFreeUnaligned),
    "S0511a": Fault(RetractCountsAsSuccess),
    "S0511b": Fault(QueuedAbortKeepsMarker),
}


def assemble(names: Sequence[str]) -> tuple[type[StreamingSessionCache], type[SessionController]]:
    """The cache class and the controller class with these faults on."""
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise ConfigError(f"unknown fault {unknown[0]!r}; valid: {', '.join(FAULTS)}")
    deviations = [FAULTS[name].deviation for name in sorted(set(names))]
    return _derive(StreamingSessionCache, deviations), _derive(SessionController, deviations)


def _derive(base: type, deviations: list[type]) -> type:
    """`base`, with every deviation of it mixed in front."""
    mixed = tuple(deviation for deviation in deviations if issubclass(deviation, base))
    return type(base.__name__, mixed, {}) if mixed else base
