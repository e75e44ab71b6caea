"""The census of a step: who owns each page, row and lock, asked of the page table, the tree and the free lists.

No counter is trusted: the running counters are compared with what was counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.state import EngineState
from kvproof.impl.window_census import window_violations
from kvproof.kernels.census import PageOwners, describe, page_census


class CensusViolation(RuntimeError):
    """A page, a row or a lock has no owner, or more than one: the step that just ended lost or shared it."""


@dataclass(frozen=True)
class Holder:
    """A request or a slot, which owns positions [cache_protected_len, kv_allocated_len) of its row."""

    name: str
    row: int
    cache_protected_len: int
    kv_allocated_len: int


def take_census(state: EngineState) -> None:
    """Raise if a page or row has not exactly one owner, or if a lock count or a running counter is not what is counted."""
    found = holders(state)
    wrong = [
        *page_violations(state, found),
        *row_violations(state, found),
        *lock_violations(state),
        *sum_violations(state),
        *window_violations(state),
    ]
    if wrong:
        raise CensusViolation(f"step {state.tell.step}: {'; '.join(wrong)}")


def page_violations(state: EngineState, found: list[Holder]) -> list[str]:
    """Pages without exactly one owner, and rows that begin with pages that the tree does not own."""
    page_size = state.config.page_size
    first = [holder.cache_protected_len // page_size for holder in found]
    pool = PageOwners(
        state.rows.req_to_token,
        _int32([holder.row for holder in found]),
        _int32(first),
        _int32([-(-holder.kv_allocated_len // page_size) for holder in found]),
        tree_pages(state),
        _int32(state.allocator.free_list()),
        state.config.pool_pages,
        page_size,
        prefix_pages=_int32(first),
    )
    census = page_census(pool)
    return describe(census, [holder.name for holder in found], limit=4) if int(census.verdict) else []


def row_violations(state: EngineState, found: list[Holder]) -> list[str]:
    """Rows that not exactly one of the free list, the requests and the slots has."""
    users = Counter([*state.rows.free_list(), *(holder.row for holder in found)])
    return [f"row {row} has {users[row]} users" for row in range(1, state.config.rows + 1) if users[row] != 1]


def lock_violations(state: EngineState) -> list[str]:
    """Lock counts that are not the number of holders at or below the node, and size counters that no recount gives."""
    if not isinstance(state.prefixes, RadixCache):
        return []
    tree = state.prefixes.tree
    expected: Counter[int] = Counter()
    held = [req.last_node for req in state.live_requests()] + [slot.last_node for slot in state.cache.slots.values()]
    for node in held:
        while node is not None:
            expected[id(node)] += 1
            node = node.parent
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


def holders(state: EngineState) -> list[Holder]:
    """The live requests, and the slots that no live request borrows from."""
    live = state.live_requests()
    found = [
        Holder(f"request {req.rid}", req.req_pool_idx, req.cache_protected_len, req.kv_allocated_len)
        for req in live
        if req.req_pool_idx is not None
    ]
    taken = {holder.row for holder in found}
    found += [
        Holder(f"session {session_id}", slot.req_pool_idx, slot.cache_protected_len, slot.kv_allocated_len)
        for session_id, slot in state.cache.slots.items()
        if slot.req_pool_idx is not None and slot.req_pool_idx not in taken
    ]
    return found


def tree_pages(state: EngineState) -> torch.Tensor:
    if not isinstance(state.prefixes, RadixCache):
        return _int32([])
    page_size = state.config.page_size
    leading = [node.value[::page_size] // page_size for node in state.prefixes.tree.nodes()]
    return torch.from_numpy(np.concatenate(leading)) if leading else _int32([])


def _int32(values: list[int] | tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
