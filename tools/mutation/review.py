"""What was found when a mutant that no check notices was read."""

from __future__ import annotations

from dataclasses import dataclass

EQUIVALENT, ALLOWED, MISSED = "equivalent", "allowed", "missed"


@dataclass(frozen=True)
class Review:
    """On mutants of one function, for one reason. `mutants`: as the results name them behind path and function, once a place."""

    path: str
    function: str
    mutants: tuple[str, ...]
    verdict: str
    reason: str
