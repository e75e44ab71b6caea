"""Whether every page has exactly one owner: yes or no, for pools on the host, after every step.

The census of `kernels/census.py` says of each page who owns it, by some fifty operations on tensors, each of which takes longer
to begin than these pools take to be counted: so does one on arrays, and most of it is done on lists. Nearly always the answer is
yes, and then this is all that has to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kvproof.impl.owners import Holder, owned_columns, owned_window_columns, tree_values, window_pages_of_tree
from kvproof.impl.pools import NO_INDICES, KVIndices
from kvproof.impl.state import EngineState
from kvproof.impl.window_pool import WindowAllocator


def every_page_has_one_owner(state: EngineState, holders: Sequence[Holder]) -> bool:
    """Of the full pool; and whether each row begins with pages of the tree, up to where its own begin."""
    page_size = state.config.page_size
    first, last = owned_columns(holders, page_size)
    if not _are_inside(state, holders, last):
        return False
    owned = _entries(state, holders, first, last)
    of_tree = [value[::page_size] for value in tree_values(state)]
    leading = _entries(state, holders, [0] * len(first), first)
    pages = (np.concatenate([NO_INDICES, *owned, *of_tree, *leading]) // page_size).tolist()
    to_tree = sum(map(len, owned))
    to_leading = to_tree + sum(map(len, of_tree))
    return set(pages[to_leading:]) <= set(pages[to_tree:to_leading]) and _is_each_once(
        state.config.pool_pages, [*pages[:to_leading], *state.allocator.free_list()]
    )


def every_window_page_has_one_owner(state: EngineState, pool: WindowAllocator, holders: Sequence[Holder]) -> bool:
    first, last = owned_window_columns(holders, pool.page_size)
    if not _are_inside(state, holders, last):
        return False
    held = np.concatenate([NO_INDICES, *_entries(state, holders, first, last)]) // pool.page_size
    if len(held) and not 0 <= held.min() <= held.max() <= state.config.pool_pages:
        return False
    window_pages = np.concatenate([pool.mapped(held), window_pages_of_tree(state, pool)]).tolist()
    return _is_each_once(pool.window_pages, [*window_pages, *pool.window_free_list()])


def _are_inside(state: EngineState, holders: Sequence[Holder], last: Sequence[int]) -> bool:
    """A position outside of the page table names no page, and a slice would not tell."""
    height, width = state.rows.table.shape
    columns = -(-width // state.config.page_size)
    rows = [holder.row for holder in holders]
    return not rows or (min(rows) >= 0 and max(rows) < height and max(last) <= columns)


def _entries(
    state: EngineState, holders: Sequence[Holder], first: Sequence[int], last: Sequence[int]
) -> list[KVIndices]:
    """Of each holder's row, from one page to before another, the first index of each page."""
    table, page_size = state.rows.table, state.config.page_size
    return [
        table[holder.row, begin * page_size : end * page_size : page_size]
        for holder, begin, end in zip(holders, first, last, strict=True)
        if begin < end
    ]


def _is_each_once(pool_pages: int, mentions: list[int]) -> bool:
    """Pages 1 to pool_pages, each once, and nothing else: as many mentions as pages, and among them every page."""
    return len(mentions) == pool_pages and set(mentions) == up_to(pool_pages)


@lru_cache(maxsize=16)
def up_to(last: int) -> frozenset[int]:
    """1 to `last`."""
    return frozenset(range(1, last + 1))
