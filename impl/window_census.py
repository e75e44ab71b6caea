"""The census of the window pool: who owns each of its pages, and whether every row still has those that its window needs.

The same question as that of census.py, asked of what the map says about the page table, the tree and the free list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvproof.impl.pools import KVIndices
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.impl.window_eviction import computed_len
from kvproof.impl.window_pool import WindowAllocator
from kvproof.impl.window_tree import WindowTree
from kvproof.kernels.census import PageOwners, describe, page_census


@dataclass(frozen=True)
class WindowHolder:
    """A request or a slot, which owns the window pages of positions [start, kv_allocated_len) of its row."""

    name: str
    row: int
    start: int
    kv_allocated_len: int
    next_position: int
    """Of the next token that will be computed, or is being computed: it looks back `window` tokens."""


def window_violations(state: EngineState) -> list[str]:
    """Nothing if there is no window pool."""
    pool = state.window_pool
    if pool is None:
        return []
    found = window_holders(state)
    return [
        *_page_violations(state, pool, found),
        *_reach_violations(state, pool, found),
        *_tree_violations(state, pool),
        *_sum_violations(state),
    ]


def window_holders(state: EngineState) -> list[WindowHolder]:
    """The live requests, and the slots that no live request borrows from."""

    def holder(name: str, of: Request | SessionSlot, next_position: int) -> WindowHolder:
        assert of.req_pool_idx is not None  # who has no row is left out below
        start = max(of.cache_protected_len, of.swa_evicted_seqlen)
        return WindowHolder(name, of.req_pool_idx, start, of.kv_allocated_len, next_position)

    live = [req for req in state.live_requests() if req.req_pool_idx is not None]
    taken = {req.req_pool_idx for req in live}
    slots = [(name, slot) for name, slot in state.cache.slots.items() if slot.req_pool_idx not in (None, *taken)]
    return [
        *(holder(f"request {req.rid}", req, computed_len(state, req)) for req in live),
        *(holder(f"session {name}", slot, _least_prefix_len(slot)) for name, slot in slots),
    ]


def _least_prefix_len(slot: SessionSlot) -> int:
    """Where the next turn may begin: a turn that was retracted computes its last token once more, if it is its own."""
    return max(slot.kv_committed_len - 1, slot.cache_protected_len)


def _page_violations(state: EngineState, pool: WindowAllocator, found: list[WindowHolder]) -> list[str]:
    """Pages of the window pool without exactly one owner. The page table is translated by the map first."""
    page_size = pool.page_size
    first = [-(-holder.start // page_size) for holder in found]
    last = [-(-holder.kv_allocated_len // page_size) for holder in found]
    owned = _tree_window_pages(state, pool)
    owners = PageOwners(
        torch.from_numpy(pool.window_table(state.rows.table)),
        _int32([holder.row for holder in found]),
        _int32(first),
        _int32([max(*ends) for ends in zip(first, last, strict=True)]),
        torch.from_numpy(owned[owned > 0]),
        _int32(pool.window_free_list()),
        pool.window_pages,
        page_size,
    )
    census = page_census(owners)
    names = [holder.name for holder in found]
    return [f"window pool: {each}" for each in describe(census, names, limit=4)] if int(census.verdict) else []


def _reach_violations(state: EngineState, pool: WindowAllocator, found: list[WindowHolder]) -> list[str]:
    """Rows that lack a window page of a position that their next token looks back to."""
    wrong = []
    for holder in found:
        start = max(holder.next_position - pool.window, 0)
        named = state.rows.read(holder.row, start - start % pool.page_size, holder.next_position)
        if not pool.window_pages_of(named).all():
            wrong.append(f"{holder.name} lacks window pages of positions [{start}, {holder.next_position})")
    return wrong


def _tree_violations(state: EngineState, pool: WindowAllocator) -> list[str]:
    """Window locks that are not the number of holders whose window reaches the node, and counters that no recount gives."""
    if not isinstance(state.prefixes, RadixCache) or not isinstance(state.prefixes.tree, WindowTree):
        return []
    tree = state.prefixes.tree
    expected: Counter[int] = Counter()
    locking = [
        *(req.last_node for req in state.live_requests()),
        *(slot.last_node for slot in state.cache.slots.values()),
    ]
    for lowest in locking:
        node, seen = lowest, 0
        while node is not None and node is not tree.root and seen < pool.window:
            expected[id(node)] += 1
            seen += len(node.key)
            node = node.parent
    wrong, sizes = [], {True: 0, False: 0}
    for node in tree.nodes():
        sizes[node.window_lock_ref > 0] += int(np.count_nonzero(pool.window_pages_of(node.value))) * pool.page_size
        if node.window_lock_ref != expected[id(node)]:
            wrong.append(
                f"a node of {len(node.key)} tokens has window_lock_ref {node.window_lock_ref}, and the windows of "
                f"{expected[id(node)]} holders reach it"
            )
    if (sizes[True], sizes[False]) != (tree.window_protected_size, tree.window_evictable_size):
        wrong.append(
            f"the tree has {sizes[True]} protected and {sizes[False]} evictable tokens with window pages, its counters "
            f"say {tree.window_protected_size} and {tree.window_evictable_size}"
        )
    return wrong


def _sum_violations(state: EngineState) -> list[str]:
    terms = state.window_terms() or {"total": 0}
    total = terms.pop("total")
    return [] if sum(terms.values()) == total else [f"the terms of the window pool do not add up to {total}: {terms}"]


def _tree_window_pages(state: EngineState, pool: WindowAllocator) -> KVIndices:
    """Of every page of the tree, its window page, 0 for a tombstone."""
    if not isinstance(state.prefixes, RadixCache):
        return np.empty(0, dtype=np.int32)
    found = [pool.window_pages_of(node.value) for node in state.prefixes.tree.nodes()]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int32)


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
