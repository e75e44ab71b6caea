"""The second pool of a model with sliding-window layers: which of its pages stands behind which page of the full pool.

SGLang keeps one map for both pools, from each index of the full pool to its index of the window pool, 0 where there is none. The
trace names window pages by what that map says when a page is taken and when it goes back, so a wrong entry shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.sglang.releases import Release


def window_allocator(release: Release, scheduler: Any) -> Any | None:
    """The allocator of the window pool, if there is one whose pages a map names.

    Some models have a window in every layer, so that both pools are one; some keep a ring of slots for each request instead.
    """
    allocator = scheduler.token_to_kv_pool_allocator
    pool = getattr(allocator, "swa_attn_allocator", None)
    of_its_own = pool is not None and pool is not allocator.full_attn_allocator
    if not of_its_own or release.window_map is None or getattr(allocator, "swa_req_ring", False):
        return None
    return pool if release.window_map(allocator) is not None else None


def window_pool(release: Release, scheduler: Any, page_ids: PageIds) -> WindowPool | None:
    pool = window_allocator(release, scheduler)
    if pool is None or release.window_map is None:
        return None
    return WindowPool(pool, release.window_map(scheduler.token_to_kv_pool_allocator), page_ids)


@dataclass(frozen=True)
class WindowPool:
    allocator: Any
    map: Any
    _page_ids: PageIds

    def behind(self, indices: Any) -> list[int]:
        """The window page behind each of these indices of the full pool; 0 where the map has none."""
        return self._page_ids.read(self.map[indices])

    def go_back(self, indices: Any, into: list[int], gone: Any = None) -> None:
        """Each window page behind these indices once; those that left the window before have none. `gone`: indices whose pages
        went back before, though the map names them still."""
        behind = self.map[indices]
        if gone is not None:
            behind = behind.masked_fill(self._pages_of(gone)[indices // self.allocator.page_size], 0)
        self._page_ids.read(behind, into, once=True, set_only=True)

    def _pages_of(self, indices: Any) -> Any:
        """Of each page of the full pool whether one of these indices is in it. Nothing waits for the device."""
        size = self.allocator.page_size
        marks = self.map.new_zeros(len(self.map) // size + 1).bool()
        return marks.index_fill_(0, (indices // size).long(), True)
