"""Mutants of SGLang 0.5.11 that all claims still hold of, read by hand. Its text is not repeated: they go by line and kind."""

from __future__ import annotations

from mutation.review import Review

REVIEWS: tuple[Review, ...] = ()
