"""What was read by hand: mutants that no check notices, each with the reason. `make mutants` reads it.

A word that no mutant answers to, and one on a mutant that a check does notice, make the run fail.
"""

from __future__ import annotations

from mutation.word import ALLOWED, EQUIVALENT, MISSED, Word
from mutation.words_on_memory import ON_MEMORY
from mutation.words_on_scheduling import ON_SCHEDULING
from mutation.words_on_sglang import ON_SGLANG

__all__ = ["ALLOWED", "EQUIVALENT", "MISSED", "WORDS", "Word"]

WORDS: tuple[Word, ...] = (*ON_MEMORY, *ON_SCHEDULING, *ON_SGLANG)
