"""Page ids that move between the free lists and their owners: what events report."""

from __future__ import annotations

from typing import Literal, NamedTuple

Pages = tuple[int, ...]
Pool = Literal["full", "window"]


class Moved(NamedTuple):
    """Page ids that moved, in the order in which they did; of the window pool, where there is one, as well."""

    alloc: Pages = ()
    free: Pages = ()
    window_alloc: Pages = ()
    window_free: Pages = ()


class PageMoves:
    """The pages that moved since the last `take`: what one event reports."""

    def __init__(self) -> None:
        self.alloc: list[int] = []
        self.free: list[int] = []
        self.window_alloc: list[int] = []
        self.window_free: list[int] = []

    def take(self) -> Moved:
        moved = Moved(tuple(self.alloc), tuple(self.free), tuple(self.window_alloc), tuple(self.window_free))
        self.alloc, self.free, self.window_alloc, self.window_free = [], [], [], []
        return moved
