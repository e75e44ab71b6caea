"""Whether every page has exactly one owner: yes or no, for pools on the host, after every step.

The census of `kernels/census.py` says of each page who owns it, by some fifty operations on tensors, each of which takes longer
to begin than these pools take to be counted: so does one on arrays, and this is done on lists. Nearly always the answer is yes,
and then this is all that has to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvproof.impl.page_ownership import Holdings, owned_columns, owned_window_columns
from kvproof.impl.pools import KVIndices
from kvproof.impl.state import EngineState
from kvproof.impl.window_pool import WindowAllocator


def every_page_has_one_owner(state: EngineState, held: Holdings) -> bool:
    """Of the full pool; and whether each row begins with pages of the tree, up to where its own begin."""
    first, last = owned_columns(held.holders, state.config.page_size)
    rows = _pages_of_rows(state, held, first, last)
    if rows is None:
        return False
    of_others: list[int] = []
    in_tree = _pages_of_tree(state, held)
    mentions = [*state.allocator.free_list(), *in_tree]
    for begin, pages in zip(first, rows, strict=True):
        of_others += pages[:begin]
        mentions += pages[begin:]
    return set(in_tree).issuperset(of_others) and _is_each_once(state.config.pool_pages, mentions)


def every_window_page_has_one_owner(state: EngineState, pool: WindowAllocator, held: Holdings) -> bool:
    first, last = owned_window_columns(held.holders, pool.page_size)
    rows = _pages_of_rows(state, held, first, last)
    if rows is None:
        return False
    owned = [page for begin, pages in zip(first, rows, strict=True) for page in pages[begin:]]
    if owned and not 0 <= min(owned) <= max(owned) <= state.config.pool_pages:
        return False
    window_page_of = pool.full_to_window_list()
    of_tree = [window_page_of[page] for page in _pages_of_tree(state, held)]
    mentions = [*pool.window_free_list(), *[window_page_of[page] for page in owned]]
    return _is_each_once(pool.window_pages, [*mentions, *[page for page in of_tree if page > 0]])


def _pages_of_rows(
    state: EngineState, held: Holdings, first: Sequence[int], last: Sequence[int]
) -> list[list[int]] | None:
    """Of each holder's row, the pages up to the last. None: one lies outside of the page table, and a slice would not tell."""
    table, page_size = state.rows.table, state.config.page_size
    height, width = table.shape
    columns = -(-width // page_size)
    found = []
    for holder, begin, end in zip(held.holders, first, map(max, first, last), strict=True):
        if not (0 <= holder.row < height and begin >= 0 and end <= columns):
            return None
        found.append(_pages(table[holder.row, : end * page_size : page_size], page_size))
    return found


def _pages_of_tree(state: EngineState, held: Holdings) -> list[int]:
    page_size = state.config.page_size
    return [page for node in held.nodes for page in _pages(node.value[::page_size], page_size)]


def _pages(first_indices: KVIndices, page_size: int) -> list[int]:
    """By the first KV index of each."""
    indices: list[int] = first_indices.tolist()
    return indices if page_size == 1 else [index // page_size for index in indices]


def _is_each_once(pool_pages: int, mentions: list[int]) -> bool:
    """Pages 1 to pool_pages, each once, and nothing else: as many mentions as pages, and among them every page."""
    return len(mentions) == pool_pages and set(mentions) == up_to(pool_pages)


@lru_cache(maxsize=16)
def up_to(last: int) -> frozenset[int]:
    """1 to `last`."""
    return frozenset(range(1, last + 1))
