"""The census of a step: who owns each page, row and lock, asked of the page table, the tree and the free lists.

No counter is trusted: the running counters are compared with what was counted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from kvproof.impl.owners import Holder, lock_holders, page_owner_violations, row_holders
from kvproof.impl.pools import KVIndices
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.state import EngineState
from kvproof.impl.window_census import window_violations


class CensusViolation(RuntimeError):
    """A page, a row or a lock has no owner, or more than one: the step that just ended lost or shared it."""


def take_census(state: EngineState) -> None:
    """Raise if a page or row has not exactly one owner, or if a lock count or a running counter is not what is counted."""
    holders = row_holders(state)
    wrong = [
        *page_violations(state, holders),
        *row_violations(state, holders),
        *lock_violations(state),
        *sum_violations(state),
        *window_violations(state, holders),
    ]
    if wrong:
        raise CensusViolation(f"step {state.tell.step}: {'; '.join(wrong)}")


def page_violations(state: EngineState, holders: list[Holder]) -> list[str]:
    """Pages without exactly one owner, and rows that begin with pages that the tree does not own.

    A holder owns positions [cache_protected_len, kv_allocated_len) of its row; what is before them is the tree's.
    """
    page_size = state.config.page_size
    first = [holder.of.cache_protected_len // page_size for holder in holders]
    last = [-(-holder.of.kv_allocated_len // page_size) for holder in holders]
    return page_owner_violations(
        state.rows.req_to_token,
        holders,
        first,
        last,
        tree_pages(state),
        state.allocator.free_list(),
        state.config.pool_pages,
        page_size,
        prefix_pages=first,
    )


def row_violations(state: EngineState, holders: list[Holder]) -> list[str]:
    """Rows that not exactly one of the free list, the requests and the slots has."""
    users = Counter([*state.rows.free_list(), *(holder.row for holder in holders)])
    return [f"row {row} has {users[row]} users" for row in range(1, state.config.rows + 1) if users[row] != 1]


def lock_violations(state: EngineState) -> list[str]:
    """Lock counts that are not the number of holders at or below the node, and size counters that no recount gives."""
    if not isinstance(state.prefixes, RadixCache):
        return []
    tree = state.prefixes.tree
    expected = lock_holders(state)
    wrong, sizes = [], {True: 0, False: 0}
    for node in tree.nodes():
        sizes[node.lock_ref > 0] += len(node.key)
        if node.lock_ref != expected[id(node)]:
            wrong.append(
                f"a node of {len(node.key)} tokens has lock_ref {node.lock_ref} and {expected[id(node)]} holders"
            )
    if (sizes[True], sizes[False]) != (tree.protected_size, tree.evictable_size):
        wrong.append(
            f"the tree has {sizes[True]} protected and {sizes[False]} evictable tokens, its counters say "
            f"{tree.protected_size} and {tree.evictable_size}"
        )
    return wrong


def sum_violations(state: EngineState) -> list[str]:
    """The equation of the memory check."""
    terms = state.memory_terms()
    total = terms.pop("total")
    return [] if sum(terms.values()) == total else [f"the terms do not add up to {total} pages: {terms}"]


def tree_pages(state: EngineState) -> torch.Tensor:
    """The pages of the tree, each by its first slot; none where there is no tree."""
    page_size = state.config.page_size
    found: list[KVIndices] = [np.empty(0, dtype=np.int32)]
    if isinstance(state.prefixes, RadixCache):
        found += [node.value[::page_size] // page_size for node in state.prefixes.tree.nodes()]
    return torch.from_numpy(np.concatenate(found))
