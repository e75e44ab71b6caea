"""Effects of a concrete step in words, as tokens and pages."""

from __future__ import annotations

from kvproof.model.integers import Integers
from kvproof.spec.effects import (
    DropRow,
    Effect,
    Free,
    FreeByLoc,
    FreeWindow,
    Insert,
    Lock,
    Report,
    Share,
    Take,
    TakeRow,
    Unlock,
    Write,
)


def in_words(effect: Effect, d: Integers) -> str | None:
    """One effect, or None where it did not take place."""
    match effect:
        case TakeRow(when=True):
            return "takes a row"
        case DropRow(when=True):
            return "returns the row"
        case Share(when=True, pages=pages) if pages:
            return f"names tree pages [0, {pages})"
        case Take(first=first, last=last) if first < last:
            return f"takes pages for [{first}, {last})"
        case Write(start=start, end=end) if start < end:
            return f"computes the KV of tokens [{start}, {end})"
        case Free(start=start, end=end) if start < end:
            return f"frees tokens [{start}, {end}) = pages [{d.floor_pages(start)}, {d.ceil_pages(end)})"
        case FreeByLoc(start=start, end=end) if start < end:
            return f"frees tokens [{start}, {end}) beside the release"
        case FreeWindow(first=first, last=last) if first < last:
            return f"frees window pages [{first}, {last})"
        case Insert(when=True, pages=pages, duplicates=duplicates):
            return f"hands pages up to {pages} to the tree, which had {duplicates}"
        case Lock(when=True):
            return "locks the tree node"
        case Unlock(when=True):
            return "unlocks the tree node"
        case Report(session_held=held, uncached=uncached):
            return f"reports session_held {held}, uncached {uncached} (pages)"
    return None


def all_in_words(effects: tuple[Effect, ...], d: Integers) -> str:
    return "; ".join(words for effect in effects if (words := in_words(effect, d)))
