"""What was read by hand: mutants that no check notices, each with the reason. `make mutants` reads it.

A word that no mutant answers to, and one on a mutant that a check does notice, make the run fail.
"""

from __future__ import annotations

from mutation.review import ALLOWED, EQUIVALENT, MISSED, Review
from mutation.reviewed_memory import ON_MEMORY
from mutation.reviewed_scheduling import ON_SCHEDULING
from mutation.reviewed_sglang import ON_SGLANG

__all__ = ["ALLOWED", "EQUIVALENT", "MISSED", "REVIEWS", "Review"]

REVIEWS: tuple[Review, ...] = (*ON_MEMORY, *ON_SCHEDULING, *ON_SGLANG)
