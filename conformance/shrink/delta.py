"""Delta debugging (Zeller and Hildebrandt, 2002): what can be left out without losing what is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def without_stretches(items: Sequence[T]) -> Iterator[list[T]]:
    """Without one stretch of items: halves first, then quarters, down to single ones; the last first."""
    size = len(items) // 2 if len(items) > 1 else len(items)
    while size:
        for start in range(len(items) - size, -1, -size):
            yield [*items[:start], *items[start + size :]]
        size //= 2


def without_any_stretch(items: Sequence[T]) -> Iterator[list[T]]:
    """Without one stretch of items, wherever it begins: as many ways as pairs of items, for when nothing else helps."""
    for size in range(len(items) - 1, 1, -1):
        for start in range(len(items) - size, -1, -1):
            yield [*items[:start], *items[start + size :]]


class Limit:
    """When to stop: a number of seconds after now."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def share(self) -> float:
        """Of the time that is over."""
        return min(1.0, 1 - (self._end - time.monotonic()) / max(self._seconds, 1e-9))

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end


def least(best: T, simpler: Callable[[T], Iterable[T]], is_kept: Callable[[T], bool], limit: Limit) -> T:
    """Go to the first simpler one that is kept, until there is none or the time is up."""
    found = True
    while found and not limit.is_over:
        found = False
        for candidate in simpler(best):
            if limit.is_over:
                break
            if is_kept(candidate):
                best, found = candidate, True
                break
    return best
