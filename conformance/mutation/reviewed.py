"""What was read by hand: mutants that no check notices, each with the reason. `make mutants` reads it.

A word that no mutant answers to, and one on a mutant that a check does notice, make the run fail.
"""

from __future__ import annotations

from dataclasses import dataclass

EQUIVALENT, ALLOWED, MISSED = "equivalent", "allowed", "missed"


@dataclass(frozen=True)
class Word:
    """On mutants of one function, for one reason. `mutants`: as the results name them behind path and function."""

    path: str
    function: str
    mutants: tuple[str, ...]
    verdict: str
    reason: str


WORDS: tuple[Word, ...] = ()
