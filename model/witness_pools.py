"""The pools of a run of the rules: which rows and pages its steps take and give back, lowest ids first.

They follow the effects of a step as it was taken, faulty ones included.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvproof.model.integers import Integers
from kvproof.model.oracle import Outcome
from kvproof.spec.effects import DropRow, Free, FreeByLoc, FreeWindow, Insert, Share, Take, TakeRow
from kvproof.spec.tree import ROOT


@dataclass
class Holder:
    """A ledger as the trace knows it: its names, its row, and the pages behind the row; the first `tree_end` are the tree's."""

    session: str | None = None
    turn: str | None = None
    refused: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Turns that left the batch, one for each of their steps whose result is not known."""
    row: int | None = None
    pages: list[int] = field(default_factory=list)
    tree_end: int = 0
    prefix: Sequence[int] = ()
    """Pages of the tree with whose tokens its input begins, where it is not the input of all requests."""


@dataclass
class Moves:
    """What one step did to pages, as its event tells it."""

    alloc: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    shared: list[int] | None = None
    window_alloc: list[int] = field(default_factory=list)
    window_free: list[int] = field(default_factory=list)


class Ids:
    """Page ids or row ids from 1, the lowest free one first. An id that a faulty rule frees twice is free once."""

    def __init__(self) -> None:
        self.highest = 0
        self._free: list[int] = []

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.highest += 1
        return self.highest

    def give(self, number: int) -> None:
        if number not in self._free:
            heapq.heappush(self._free, number)


class Pools:
    """Rows, pages, window pages, and the pages of the tree. All requests begin with the tokens of its oldest path."""

    def __init__(self, d: Integers) -> None:
        self._d = d
        self.full, self.rows, self.windows = Ids(), Ids(), Ids()
        self.window_of: dict[int, int] = {}
        """The full->window map, by page."""
        self._behind: dict[int, int] = {}
        """Page of the tree, or ROOT -> the first page that continued it."""
        self.tree_pages = 0
        """All pages of the tree."""

    def path(self, prefix: Sequence[int] = ()) -> list[int]:
        """The oldest path of the tree that begins with these pages."""
        path = list(prefix)
        while (page := self._behind.get(path[-1] if path else ROOT)) is not None:
            path.append(page)
        return path

    def move(self, holder: Holder, outcome: Outcome) -> Moves:
        """The effects, on page ids."""
        moves = Moves()
        for effect in outcome.effects:
            match effect:
                case TakeRow(when=True):
                    holder.row, holder.pages, holder.tree_end = self.rows.take(), [], 0
                case DropRow(when=True):
                    if holder.row is not None:
                        self.rows.give(holder.row)
                    holder.row, holder.pages, holder.tree_end = None, [], 0
                case Share(when=True, pages=pages):
                    holder.pages, holder.tree_end = self.path(holder.prefix)[:pages], pages
                    moves.shared = list(holder.pages)
                case Take(first=first, last=last) if first < last:
                    fresh = [self.full.take() for _ in range(last - first)]
                    holder.pages[first:last] = fresh
                    moves.alloc += fresh
                    self._take_windows(fresh, moves)
                case Free(start=start, end=end) if start < end:
                    first, last = self._d.floor_pages(start), self._d.ceil_pages(end)
                    self._free(holder.pages[first:last], moves)
                    del holder.pages[first:last]
                case FreeByLoc(start=start, end=end) if start < end:
                    self._free(holder.pages[self._d.floor_pages(start) : self._d.ceil_pages(end)], moves)
                case FreeWindow(first=first, last=last):
                    self._free_windows(holder.pages[first:last], moves)
                case Insert(when=True) as insert:
                    self._insert(holder, insert, moves)
                case _:
                    pass
        return moves

    def _insert(self, holder: Holder, insert: Insert, moves: Moves) -> None:
        """Copies of what the tree has are freed, and the row names the tree's own; the rest becomes the tree's."""
        in_tree = self.path(holder.pages[: holder.tree_end])
        for position in range(holder.tree_end, insert.pages):
            if position < insert.duplicates:
                if position >= insert.freed_from:
                    self._keep_window(holder.pages[position], in_tree[position])
                    self._free([holder.pages[position]], moves)
                holder.pages[position] = in_tree[position]
            else:
                self.tree_pages += 1
                self._behind.setdefault(holder.pages[position - 1] if position else ROOT, holder.pages[position])
        holder.tree_end = insert.pages
        moves.shared = holder.pages[: insert.pages]

    def _free(self, pages: list[int], moves: Moves) -> None:
        moves.free += pages
        self._free_windows(pages, moves)
        for page in pages:
            self.full.give(page)

    # -- pages of the window pool --

    def _take_windows(self, pages: list[int], moves: Moves) -> None:
        if self._d.windowed:
            self.window_of.update((page, self.windows.take()) for page in pages)
            moves.window_alloc += [self.window_of[page] for page in pages]

    def _free_windows(self, pages: list[int], moves: Moves) -> None:
        for window in [self.window_of.pop(page) for page in pages if page in self.window_of]:
            self.windows.give(window)
            moves.window_free.append(window)

    def _keep_window(self, duplicate: int, kept: int) -> None:
        """A page whose window page the tree had evicted gets that of the duplicate, which has the same tokens."""
        if kept not in self.window_of and duplicate in self.window_of:
            self.window_of[kept] = self.window_of.pop(duplicate)
