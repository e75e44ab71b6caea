"""For how long something that can go on may stand still, go round, or go on after its end was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Turns and closes: in passes of the scheduler, batches with a decode step in them or passes that find nothing to run."""

    turns: int = 64
    """Of a turn that runs, and of one that waits while there is room for it and for all that run."""
    closes: int = 4096
    """Of a close whose turn is over, while others run. SGLang looks after closes once a second."""
    retracts: int = 64
    """How often a turn may be retracted without a token between. A few are right: under overlap a turn may be retracted before
    the result of its prefill is in, and a scheduler that is short of pages takes the turn with the fewest tokens first."""
    aborted: int = 2
    """How many steps may be launched of a turn after its abort was asked for: the one that is prepared then, and under overlap
    the one behind it."""
