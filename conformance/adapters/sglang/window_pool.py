"""Where a release of SGLang keeps the second pool of a model with sliding-window layers (`adapters/row_pages.py`)."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.row_pages import WindowPool
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
