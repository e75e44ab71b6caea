"""Whether every page has exactly one owner: yes or no, for pools on the host, after every step.

The census of `kernels/census.py` says of each page who owns it, by some fifty operations on tensors, each of which takes longer
to begin than these pools take to be counted. Nearly always the answer is yes, and then this is all that has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from kvproof.impl.owners import Holder, owned_columns, owned_window_columns, tree_pages, window_pages_of_tree
from kvproof.impl.pools import NO_INDICES, KVIndices
from kvproof.impl.state import EngineState
from kvproof.impl.window_pool import WindowAllocator


def every_page_has_one_owner(state: EngineState, holders: Sequence[Holder]) -> bool:
    """Of the full pool; and whether each row begins with pages of the tree, up to where its own begin."""
    page_size = state.config.page_size
    first, last = owned_columns(holders, page_size)
    if not _are_inside(state, holders, last):
        return False
    of_tree = tree_pages(state)
    held = _pages(state, holders, first, last)
    if not _is_each_once(state.config.pool_pages, *held, of_tree, state.allocator.free_list()):
        return False
    if not any(first):
        return True
    is_of_tree = np.zeros(state.config.pool_pages + 1, np.bool_)
    is_of_tree[of_tree] = True
    leading = np.concatenate([*_pages(state, holders, [0] * len(first), first)])
    return bool(_are_pages(leading, state.config.pool_pages) and is_of_tree[leading].all())


def every_window_page_has_one_owner(state: EngineState, pool: WindowAllocator, holders: Sequence[Holder]) -> bool:
    first, last = owned_window_columns(holders, pool.page_size)
    if not _are_inside(state, holders, last):
        return False
    held = np.concatenate([NO_INDICES, *_pages(state, holders, first, last)])
    if not _are_pages(held, state.config.pool_pages):
        return False
    return _is_each_once(
        pool.window_pages, pool.mapped(held), window_pages_of_tree(state, pool), pool.window_free_list()
    )


def _are_inside(state: EngineState, holders: Sequence[Holder], last: Sequence[int]) -> bool:
    """A position outside of the page table names no page, and a slice would not tell."""
    height, width = state.rows.table.shape
    columns = -(-width // state.config.page_size)
    return all(0 <= holder.row < height and end <= columns for holder, end in zip(holders, last, strict=True))


def _pages(
    state: EngineState, holders: Sequence[Holder], first: Sequence[int], last: Sequence[int]
) -> Iterator[KVIndices]:
    """The pages of each holder's row from one column to before another."""
    table, page_size = state.rows.table, state.config.page_size
    for holder, begin, end in zip(holders, first, last, strict=True):
        if begin < end:
            yield table[holder.row, begin * page_size : end * page_size : page_size] // page_size


def _is_each_once(pool_pages: int, *mentions: KVIndices | Sequence[int]) -> bool:
    """Pages 1 to pool_pages, each once, and nothing else."""
    if sum(map(len, mentions)) != pool_pages:
        return False
    pages = np.concatenate(
        mentions, dtype=NO_INDICES.dtype, casting="unsafe"
    )  # no free pages at all: an empty list of numbers of no kind
    pages.sort()
    return bytes(pages.data) == _all_pages(pool_pages)


@lru_cache(maxsize=8)
def _all_pages(pool_pages: int) -> bytes:
    return np.arange(1, pool_pages + 1, dtype=NO_INDICES.dtype).tobytes()


def _are_pages(pages: KVIndices, pool_pages: int) -> bool:
    return not len(pages) or bool(pages.min() >= 0 and pages.max() <= pool_pages)
