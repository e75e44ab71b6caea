"""How many pages something takes, and how many can be had."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvproof.impl.request import Request
    from kvproof.impl.scheduler import Scheduler


class PageCounts:
    def __init__(self, scheduler: Scheduler) -> None:
        self._state = scheduler.state
        self._page_size = scheduler.config.page_size
        drafts = scheduler.config.drafts
        self.round_len = {0: 1, 1: drafts + 1, 2: 2 * drafts + 2}[scheduler.config.speculation]
        """Positions behind C that a round needs: two rounds of drafts where one is in flight while the next is prepared."""

    def pages(self, tokens: int) -> int:
        return -(-tokens // self._page_size)

    @property
    def obtainable(self) -> int:
        """Free, or in the tree and unlocked; in both pools, where there are two."""
        state = self._state
        full = state.allocator.available_pages + state.prefixes.tree.evictable_size // self._page_size
        if state.window_pool is None:
            return full
        window = state.window_pool.available_window_pages + state.prefixes.tree.window_evictable_size // self._page_size
        return min(full, window)

    def has_next_round_of(self, requests: Iterable[Request]) -> bool:
        taken = 0
        for req in requests:
            held = req.kv_allocated_len
            taken += self.pages(max(held, req.kv_committed_len + self.round_len)) - self.pages(held)
        return taken <= self.obtainable
