"""The census of the window pool: who owns each of its pages, and whether every row still has those that its window needs.

The same question as that of census.py, asked of what the map says about the page table, the tree and the free list.
"""

from __future__ import annotations

import numpy as np
import torch

from kvproof.impl.owners import Holder, lock_holders, page_owner_violations
from kvproof.impl.pools import KVIndices
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.impl.window_eviction import computed_len
from kvproof.impl.window_pool import WindowAllocator
from kvproof.impl.window_tree import WindowTree


def window_violations(state: EngineState, holders: list[Holder]) -> list[str]:
    """Nothing if there is no window pool."""
    pool = state.window_pool
    if pool is None:
        return []
    return [
        *_page_violations(state, pool, holders),
        *_reach_violations(state, pool, holders),
        *_tree_violations(state, pool),
        *_sum_violations(state),
    ]


def _page_violations(state: EngineState, pool: WindowAllocator, holders: list[Holder]) -> list[str]:
    """Pages of the window pool without exactly one owner. The page table is translated by the map first.

    A holder owns the window pages of its row from the window cursor on, or from where the tree's own pages end.
    """
    page_size = pool.page_size
    first = [-(-max(holder.of.cache_protected_len, holder.of.swa_evicted_seqlen) // page_size) for holder in holders]
    last = [-(-holder.of.kv_allocated_len // page_size) for holder in holders]
    owned = _tree_window_pages(state, pool)
    wrong = page_owner_violations(
        torch.from_numpy(pool.window_table(state.rows.table)),
        holders,
        first,
        [max(*ends) for ends in zip(first, last, strict=True)],
        torch.from_numpy(owned[owned > 0]),
        pool.window_free_list(),
        pool.window_pages,
        page_size,
    )
    return [f"window pool: {each}" for each in wrong]


def _reach_violations(state: EngineState, pool: WindowAllocator, holders: list[Holder]) -> list[str]:
    """Rows that lack a window page of a position that their next token looks back to."""
    wrong = []
    for holder in holders:
        end = _next_position(state, holder.of)
        start = max(end - pool.window, 0)
        named = state.rows.read(holder.row, start - start % pool.page_size, end)
        if not pool.window_pages_of(named).all():
            wrong.append(f"{holder.name} lacks window pages of positions [{start}, {end})")
    return wrong


def _next_position(state: EngineState, holder: Request | SessionSlot) -> int:
    """Of the next token that will be computed, or is being computed: it looks back `window` tokens."""
    if isinstance(holder, Request):
        return computed_len(state, holder)
    # Where the next turn may begin: one that was retracted computes its last token once more, if it is its own.
    return max(holder.kv_committed_len - 1, holder.cache_protected_len)


def _tree_violations(state: EngineState, pool: WindowAllocator) -> list[str]:
    """Window locks that are not the number of holders whose window reaches the node, and counters that no recount gives."""
    if not isinstance(state.prefixes, RadixCache) or not isinstance(state.prefixes.tree, WindowTree):
        return []
    tree = state.prefixes.tree
    expected = lock_holders(state, pool.window)
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
    found: list[KVIndices] = [np.empty(0, dtype=np.int32)]
    if isinstance(state.prefixes, RadixCache):
        found += [pool.window_pages_of(node.value) for node in state.prefixes.tree.nodes()]
    return np.concatenate(found)
