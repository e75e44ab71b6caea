"""Reads what can be seen of sglang-jax's requests, rows and pools, in the field names of the trace. It changes nothing."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.live.readings import TURN, Values
from kvproof.conformance.adapters.row_pages import RowPages, full_pool

NO_LENGTHS = "kv_committed_len, kv_allocated_len and cache_protected_len: this checkout's requests do not keep them"
NO_PROTECTED_LEN = "cache_protected_len: on a chunk cache the tree owns nothing, and nothing reads the value"
WINDOW_PAGES = "pages of the window pool: the trace has the cursor and the terms of the check, not the page ids"


class Observer(RowPages):
    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler, has_window=scheduler.is_hybrid)
        self.has_tree = hasattr(scheduler.tree_cache, "root_node") and not scheduler.tree_cache.disable

    def gaps(self, req_class: type) -> tuple[str, ...]:
        kept = hasattr(req_class, "pop_committed_kv_cache")
        found = [] if kept else [NO_LENGTHS]
        found += [NO_PROTECTED_LEN] if kept and not self.has_tree else []
        return (*found, *([WINDOW_PAGES] if self.has_window else []))

    def lengths(self, req: Any) -> Values:
        """Those that the checkout keeps; before its pull request 994 it infers them from the tokens, where it needs them."""
        seen = {name: int(getattr(req, name)) for name in TURN if hasattr(req, name)}
        if not self.has_tree:
            seen.pop("cache_protected_len", None)
        if self.has_window:
            seen["swa_evicted_seqlen"] = int(req.swa_evicted_seqlen)
        return seen

    def free_pages(self) -> list[int]:
        """Every free page of the full-attention pool; one that was freed twice stands twice where the pool lets it."""
        pool = full_pool(self._scheduler.token_to_kv_pool_allocator)
        if self.page_size == 1:
            return [int(slot) for slot in pool.free_slots[0]]
        return [int(page) for page in (*pool.free_pages[0], *pool.release_pages[0])]

    def terms(self) -> dict[str, Values]:
        """The terms of its idle memory check, pool by pool, in pages; nothing is running then."""
        tree, allocator = self._scheduler.tree_cache, self._scheduler.token_to_kv_pool_allocator
        if not self.has_window:
            seen = (allocator.available_size(), tree.evictable_size(), tree.protected_size())
            return {"terms": self._in_pages(*seen, allocator.size)}
        full = (allocator.full_available_size(), tree.full_evictable_size(), tree.full_protected_size())
        window = (allocator.swa_available_size(), tree.swa_evictable_size(), tree.swa_protected_size())
        return {
            "terms": self._in_pages(*full, allocator.size_full),
            "window_terms": self._in_pages(*window, allocator.size_swa),
        }

    def _in_pages(self, available: int, evictable: int, protected: int, total: int) -> Values:
        tokens = {"available": available, "evictable": evictable, "protected": protected, "total": total}
        return {**{name: int(of) // self.page_size for name, of in tokens.items()}, "session_held": 0, "uncached": 0}
