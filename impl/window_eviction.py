"""Window eviction: what a row's next token does not look back to any more gives its window pages back.

The cursor `swa_evicted_seqlen` of a request, and of a slot between turns, says how far this went: the row's own window pages
begin at max(cache_protected_len, swa_evicted_seqlen).
"""

from __future__ import annotations

from kvproof.impl.chunk_cache import floor_align
from kvproof.impl.request import Request
from kvproof.impl.state import EngineState


def evict_live_windows(state: EngineState) -> None:
    """Between two steps: for every request of the batch, running or between two chunks."""
    if state.window_pool is not None:
        for req in state.live_requests():
            evict_window(state, req, computed_len(state, req))


def evict_window(state: EngineState, req: Request, pre_len: int) -> None:
    """Free the window pages of [E, E'), E' = floor(pre_len - W - P): one page more stays than the next token needs.

    `pre_len` is no more than the request keeps: what the next token behind that looks back to, is needed.
    """
    pool = state.window_pool
    if pool is None:
        return
    start = max(req.swa_evicted_seqlen, req.cache_protected_len)
    end = floor_align(max(pre_len - pool.window - pool.page_size, 0), pool.page_size)
    if end <= start:
        return
    assert req.req_pool_idx is not None  # a request of the batch has a row
    pool.free_window(state.rows.read(req.req_pool_idx, start, end))
    req.swa_evicted_seqlen = end
    state.reporter.window(req, pre_len)


def computed_len(state: EngineState, req: Request) -> int:
    """Leading tokens whose KV exists: what a forward in flight writes does not count, so that what it reads stays."""
    for launched in state.launched:
        for chunk in launched.chunks:
            if chunk.req is req:
                return chunk.prefix_len
    return req.kv_committed_len - req.results_due
