"""The events of a session, or around a page, one line each: what `--session` and `--page` show beside the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.slices import Slice
from kvproof.conformance.traces.slicing import Cut
from kvproof.spec.trace import Event

MAX_PAGES = 8
_MOVES = ("alloc", "free", "shared", "window_alloc", "window_free")


def timeline(path: Path, part: Slice) -> Iterator[str]:
    """The events of a trace that are in a part of it, read anew: a stream, however long."""
    return map(line_of, Cut(read_trace(path), part))


def line_of(event: Event) -> str:
    """Which event, whose, the pages that moved, and what was seen after it."""
    whose = [f"{name} {value}" for name in ("session", "turn", "row") if (value := getattr(event, name)) is not None]
    moves = [f"{name} {pages_in_words(pages)}" for name in _MOVES if (pages := getattr(event, name))]
    after = [f"{name}={value}" for name, value in event.after.model_dump(exclude_none=True).items()]
    where = f"event {event.seq}" + (f", step {event.step}" if event.step is not None else "")
    return "  ".join(filter(None, (where, event.action, ", ".join(whose), "; ".join(moves), " ".join(after))))


def pages_in_words(pages: tuple[int, ...]) -> str:
    """The first eight, and how many more there are."""
    named = " ".join(map(str, pages[:MAX_PAGES]))
    return named if len(pages) <= MAX_PAGES else f"{named} and {len(pages) - MAX_PAGES} more"
