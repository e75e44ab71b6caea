"""The pool of sliding-window layers: a second, smaller pool, and the map from each page of the full pool to its page there.

Every page of the full pool is handed out with a page of the window pool. What lies behind the window gives that one back
and keeps its page of the full pool, whose layers still look at it: a tombstone, mapped to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch

from kvproof.impl.pools import NO_INDICES, KVAllocator, KVIndices, OutOfPages


class WindowAllocator(KVAllocator):
    def __init__(
        self, pool_pages: int, window_pages: int, page_size: int, window: int, *, keeps_moves: bool = True
    ) -> None:
        super().__init__(pool_pages, page_size, keeps_moves=keeps_moves)
        self.window = window
        """Tokens that a sliding-window layer looks back."""
        self.window_pages = window_pages
        self.full_to_window = torch.zeros(pool_pages + 1, dtype=torch.int32)
        """The window page of each page of the full pool, 0 for none. A runner reads it at each launch."""
        self._window_page_of = self.full_to_window.numpy()
        self._free_window_pages = list(range(window_pages, 0, -1))

    @property
    def takeable_pages(self) -> int:
        return min(self.available_pages, self.available_window_pages)

    @property
    def available_window_pages(self) -> int:
        return len(self._free_window_pages)

    def window_free_list(self) -> tuple[int, ...]:
        """Every free page of the window pool, as often as it is listed, in ascending order."""
        return tuple(sorted(self._free_window_pages))

    def full_to_window_list(self) -> list[int]:
        """The window page of each page from 0 on, 0 for none."""
        window_pages: list[int] = self._window_page_of.tolist()
        return window_pages

    def window_pages_of(self, kv_indices: KVIndices) -> KVIndices:
        """The window page of each page that these whole pages of KV indices lie in, 0 for none."""
        return self.mapped(kv_indices[:: self.page_size] // self.page_size)

    def window_pages_of_each(self, parts: Sequence[KVIndices]) -> list[list[int]]:
        """Window pages of several parts, looked up at once: many parts of few pages each take most of the time to begin."""
        first = [part[:: self.page_size] for part in parts]
        found = self.mapped(np.concatenate([NO_INDICES, *first]) // self.page_size).tolist()
        ends = [0, *accumulate(map(len, first))]
        return [found[begin:end] for begin, end in pairwise(ends)]

    def mapped(self, pages: KVIndices) -> KVIndices:
        """The window page of each page, 0 for none."""
        window_pages: KVIndices = self._window_page_of[pages]
        return window_pages

    def free(self, kv_indices: KVIndices) -> None:
        """Return the pages that these KV indices lie in, and the window pages that they still have."""
        super().free(kv_indices)
        self.free_window(kv_indices)

    def free_window(self, kv_indices: KVIndices) -> None:
        """Return the window pages behind these KV indices. Their pages of the full pool stay where they are."""
        pages = np.unique(kv_indices // self.page_size)
        pages = pages[self._window_page_of[pages] != 0]
        freed: list[int] = self._window_page_of[pages].tolist()
        self._window_page_of[pages] = 0
        if self.moves is not None:
            self.moves.window_free.extend(freed)
        if self.device is not None:
            self.device.freed_window(pages.tolist())
        self._free_window_pages.extend(reversed(freed))

    def heal(self, tombstones: KVIndices, duplicates: KVIndices) -> int:
        """Give the window pages of duplicates to the pages that hold the same tokens and have none; how many went over.

        Both are whole pages, in the same order. What is no tombstone, and what has no window page to give, stays.
        """
        to, given = (indices[:: self.page_size] // self.page_size for indices in (tombstones, duplicates))
        healed = (self._window_page_of[to] == 0) & (self._window_page_of[given] != 0)
        self._window_page_of[to[healed]] = self._window_page_of[given[healed]]
        self._window_page_of[given[healed]] = 0
        if self.device is not None:
            self.device.healed(to[healed].tolist(), given[healed].tolist())
        return int(np.count_nonzero(healed))

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_window_pages):
            raise OutOfPages(f"{count} pages asked for, {len(self._free_window_pages)} free in the window pool")
        pages = super()._take(count)
        window_pages = [self._free_window_pages.pop() for _ in range(count)]
        self._window_page_of[pages] = window_pages
        if self.moves is not None:
            self.moves.window_alloc.extend(window_pages)
        return pages
