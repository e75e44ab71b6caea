"""Which page of the window pool stands behind which page of the full pool: the true full->window map of a trace.

A sliding-window model keeps the KV of its window layers in a second, smaller pool. Each page that a row takes brings one of
that pool, and the map names it until the page is freed or leaves the window. So a window page has no owner of its own: it
belongs to whoever owns the full page, and the map is all there is to know (I10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class WindowMoves:
    """What one event does to the map: entries set and cleared, pages that must go back, what is wrong."""

    entries: dict[int, int | None] = field(default_factory=dict)
    """Full page -> its window page afterwards; None: it has none any more."""
    behind: dict[int, int | None] = field(default_factory=dict)
    """Window page -> the full page in front of it afterwards; None: there is none any more."""
    freed: list[int] = field(default_factory=list)
    wanted: int = 0
    problems: list[str] = field(default_factory=list)

    def put(self, page: int, window: int) -> None:
        self.entries[page], self.behind[window] = window, page

    def clear(self, page: int, window: int) -> None:
        self.entries[page], self.behind[window] = None, None


class WindowBook:
    """The map of one run. A trace that names no window pages has `pool_pages` 0: then nothing is followed or judged."""

    def __init__(self, pool_pages: int) -> None:
        self.pool_pages = pool_pages
        self._window_of: dict[int, int] = {}
        self._behind: dict[int, int] = {}

    def copy(self) -> WindowBook:
        """Another map of the same state, which may go on by itself."""
        other = WindowBook(self.pool_pages)
        other._window_of, other._behind = self._window_of.copy(), self._behind.copy()
        return other

    @property
    def is_followed(self) -> bool:
        return self.pool_pages > 0

    def is_free(self, window_page: int) -> bool:
        return window_page not in self._behind and 1 <= window_page <= self.pool_pages

    def free_count(self) -> int:
        return self.pool_pages - len(self._behind)

    def mapped(self) -> Iterable[int]:
        """The full pages that have a window page."""
        return self._window_of.keys()

    def entries(self) -> Iterable[tuple[int, int]]:
        """Each of them with its window page."""
        return self._window_of.items()

    def is_behind(self, page: int) -> bool:
        """Whether a window page stands behind this page."""
        return page in self._window_of

    def of(self, page: int) -> int | None:
        """The window page that stands behind this page; None if none does."""
        return self._window_of.get(page)

    def behind(self, window_page: int) -> int | None:
        """The full page that names this window page; None if none does."""
        return self._behind.get(window_page)

    def take(self, moves: WindowMoves, pages: Sequence[int], fresh: list[int]) -> None:
        """Each of `pages` gets the next of `fresh`, which is consumed."""
        if not self.is_followed:
            return
        moves.wanted += len(pages)
        got, fresh[: len(pages)] = fresh[: len(pages)], []
        for page, window in zip(pages, got, strict=False):
            named_by = self.named_by(moves, window)
            if not 1 <= window <= self.pool_pages:
                moves.problems.append(
                    f"window page {window} was handed out: it is not one of the pool's {self.pool_pages}"
                )
                continue
            if named_by is not None:
                moves.problems.append(f"window page {window} was handed out while page {named_by} names it")
            moves.put(page, window)

    def release(self, moves: WindowMoves, pages: Iterable[int]) -> None:
        """The window pages behind these pages go back; a page that left the window has none any more."""
        for page in pages:
            window = self._now(moves, page)
            if window is not None:
                moves.freed.append(window)
                moves.clear(page, window)

    def hand_on(self, moves: WindowMoves, duplicate: int, kept: int, returned: Iterable[int]) -> None:
        """A duplicate is freed. Its window page goes to the kept page if that had lost its own and it was not returned."""
        window = self._now(moves, duplicate)
        if window is not None and self._now(moves, kept) is None and window not in returned:
            moves.clear(duplicate, window)
            moves.put(kept, window)
        else:
            self.release(moves, [duplicate])

    def commit(self, moves: WindowMoves) -> None:
        _update(self._window_of, moves.entries)
        _update(self._behind, moves.behind)

    def _now(self, moves: WindowMoves, page: int) -> int | None:
        return moves.entries[page] if page in moves.entries else self._window_of.get(page)

    def named_by(self, moves: WindowMoves, window: int) -> int | None:
        """The page that names a window page once the moves so far are made."""
        return moves.behind[window] if window in moves.behind else self._behind.get(window)


def reaches(end: Any, window: Any, end_of_page: Any) -> Any:
    """Whether the window of the token at position `end` reaches a page of the row that ends at `end_of_page`. The compiled
    checker runs this on its numbers, and on terms."""
    return end_of_page > end - window


def _update(held: dict[int, int], changes: Mapping[int, int | None]) -> None:
    for key, value in changes.items():
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
