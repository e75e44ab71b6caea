"""The known failures by id, each as the faulty code path was: classes that put the old rule back over the right one.

A fault replaces whole methods; nothing in the right code asks whether a fault is on. The id is the pull request that fixed
it. `assemble` gives the classes of an engine with any set of faults.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.impl import scheduling_faults as scheduling
from kvproof.impl import session_faults as sessions
from kvproof.impl import window_faults as windows
from kvproof.impl.assembly import Parts
from kvproof.impl.config import ConfigError


class Fault:
    def __init__(self, *deviations: type) -> None:
        self.deviations = deviations

    @property
    def description(self) -> str:
        """The rule as it was, in one sentence."""
        _, _, text = (self.deviations[0].__doc__ or "").partition(": ")
        return " ".join(text.split())


FAULTS: dict[str, Fault] = {
    "F12224": Fault(scheduling.ExtraSlotFreed),
    "F17850": Fault(sessions.RowFreedBetweenChunks),
    "F20070": Fault(sessions.CommittedLenAsProtectedLen),
    "F20476": Fault(sessions.RestoreClearsRow),
    "F20557": Fault(sessions.LogprobCutsKey),
    "F21875a": Fault(sessions.CloseUnderRunningTurn),
    "F21875b": Fault(sessions.PreAbortedTurnRestores),
    "F21875c": Fault(sessions.TailGoesIntoSlot),
    "F22213": Fault(sessions.LentSlotsCounted),
    "F22651": Fault(scheduling.NothingClaimed, scheduling.WholeAcceptLenAdded),
    "F22735": Fault(scheduling.ReleaseMatchesAgain),
    "F22753": Fault(sessions.LentFlag),
    "F22790a": Fault(sessions.AbortSavesPartialLengths),
    "F22790b": Fault(sessions.FirstAbortReturnsNothing),
    "F22790c": Fault(sessions.PreAbortedTurnStays),
    "F22790d": Fault(sessions.CheckpointMovesAtCreate),
    "F22790e": Fault(sessions.BusySessionAdmits),
    "F22862a": Fault(sessions.NoTailFree),
    "F22862b": Fault(sessions.TailFreeUnaligned),
    "F22897": Fault(sessions.OvershootStays),
    "F22900": Fault(windows.CursorStaysAtTrim, windows.OvershootMovesWindow),
    "F994a": Fault(scheduling.DuplicatesFromPrefix),
    "F994b": Fault(windows.StripsLastSlot),
    "F994c": Fault(scheduling.RemembersItsSlot, scheduling.LateResultFreesSlot),
    "F994d": Fault(scheduling.FirstChunkCounted),
    "F994e": Fault(scheduling.RetractOnEveryStep),
    "S0511a": Fault(sessions.RetractCountsAsSuccess),
    "S0511b": Fault(sessions.QueuedAbortKeepsMarker),
}


def assemble(names: Sequence[str]) -> Parts:
    """The classes of an engine with these faults on."""
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise ConfigError(f"unknown fault {unknown[0]!r}; valid: {', '.join(FAULTS)}")
    return Parts([deviation for name in sorted(set(names)) for deviation in FAULTS[name].deviations])
