"""For how long something may stand still that can go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Bounds in passes of the scheduler: batches with a decode step in them, or passes that find nothing to run."""

    turns: int = 64
    """Of a turn that runs, and of one that waits while there is room for it and for all that run."""
    closes: int = 4096
    """Of a close whose turn is over, while others run. SGLang looks after closes once a second."""
