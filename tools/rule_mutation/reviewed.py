"""Mutants of the specification that no check notices, read by hand, each with the reason. `make mutants-spec` reads it."""

from __future__ import annotations

from mutation.review import ALLOWED, EQUIVALENT, MISSED, Review

__all__ = ["ALLOWED", "EQUIVALENT", "MISSED", "REVIEWS", "Review"]

REVIEWS: tuple[Review, ...] = ()
