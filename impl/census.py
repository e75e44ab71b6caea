"""The census of a step: who owns each page, row and lock, asked of the page table, the tree and the free lists.

No counter is trusted: the running counters are compared with what was counted. Pages are counted by a kernel
(page_ownership.py), all else here. Where the pools are on a device, the kernel counts there: device_census.py.
"""

from __future__ import annotations

from collections import Counter

import torch

from kvproof.impl.page_ownership import Holdings, Tables, lock_holders, page_owners, window_page_owners
from kvproof.impl.quick_census import every_page_has_one_owner, every_window_page_has_one_owner, up_to
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState, MemoryTerms
from kvproof.impl.window_eviction import computed_len
from kvproof.kernels.census import PageOwners, describe, page_census


class CensusViolation(RuntimeError):
    """A page, a row or a lock has no owner, or more than one: the step that just ended lost or shared it."""

    @classmethod
    def of_step(cls, step: int, sentences: list[str]) -> CensusViolation:
        return cls(f"step {step}: {'; '.join(sentences)}")


class Census:
    """Of pools on the host."""

    def __init__(self, state: EngineState) -> None:
        self.state = state

    def take(self, terms: MemoryTerms | None = None) -> None:
        """`terms` of the memory check, if they were asked for in this very step."""
        take_census(self.state, terms)

    def settle(self) -> None:
        """At the end of a run: nothing is still to be said here, as each step was judged in itself."""


def take_census(state: EngineState, terms: MemoryTerms | None = None) -> None:
    """Raise if a page or row has not exactly one owner, or if a lock count or a running counter is not what is counted."""
    held = Holdings.of(state)
    wrong = [
        *page_violations(state, held),
        *book_violations(state, held, terms or state.all_memory_terms()),
    ]
    if wrong:
        raise CensusViolation.of_step(state.reporter.step, wrong)


def page_violations(state: EngineState, held: Holdings) -> list[str]:
    """Pages of either pool without exactly one owner, and rows that begin with pages that the tree does not own."""
    pool, wrong = state.window_pool, []
    if not every_page_has_one_owner(state, held):
        wrong += _count(page_owners(state, held, tables_of_books(state)), held)
    if pool is not None and not every_window_page_has_one_owner(state, pool, held):
        owners = window_page_owners(pool, held, tables_of_books(state))
        wrong += [f"{WINDOW}{each}" for each in _count(owners, held)]
    return wrong


WINDOW = "window pool: "


def tables_of_books(state: EngineState) -> Tables:
    pool = state.window_pool
    free = torch.tensor(state.allocator.free_list(), dtype=torch.int32)
    if pool is None:
        return Tables(state.rows.req_to_token, free)
    window_free = torch.tensor(pool.window_free_list(), dtype=torch.int32)
    return Tables(state.rows.req_to_token, free, pool.full_to_window, window_free)


def book_violations(state: EngineState, held: Holdings, terms: MemoryTerms) -> list[str]:
    """All that is counted by the books alone: rows, locks, sums, and what windows reach."""
    return [
        *row_violations(state, held),
        *lock_violations(state, held),
        *sum_violations(terms.full, ""),
        *sum_violations(terms.window, " of the window pool"),
        *reach_violations(state, held),
        *window_lock_violations(state, held),
    ]


def row_violations(state: EngineState, held: Holdings) -> list[str]:
    """Rows that not exactly one of the free list, the requests and the slots has."""
    named = [*state.rows.free_list(), *[holder.row for holder in held.holders]]
    if len(named) == state.config.rows and set(named) == up_to(state.config.rows):
        return []
    users = Counter(named)
    return [f"row {row} has {users[row]} users" for row in range(1, state.config.rows + 1) if users[row] != 1]


def lock_violations(state: EngineState, held: Holdings) -> list[str]:
    """Lock counts that are not the number of holders at or below the node, and size counters that no recount gives."""
    tree = state.prefixes.tree
    expected = lock_holders(state)
    wrong, sizes = [], {True: 0, False: 0}
    for node in held.nodes:
        sizes[node.lock_ref > 0] += len(node.key)
        if node.lock_ref != (held_by := expected.get(id(node), 0)):
            wrong.append(f"a node of {len(node.key)} tokens has lock_ref {node.lock_ref} and {held_by} holders")
    return wrong + size_violations(sizes, tree.protected_size, tree.evictable_size, "tokens")


def window_lock_violations(state: EngineState, held: Holdings) -> list[str]:
    """Window locks that are not the number of holders whose window reaches the node, and size counters that no recount gives."""
    pool, tree = state.window_pool, state.prefixes.tree
    if pool is None:
        return []
    expected = lock_holders(state, pool.window)
    wrong, sizes = [], {True: 0, False: 0}
    window_pages = pool.window_pages_of_each([node.value for node in held.nodes])
    for node, there in zip(held.nodes, window_pages, strict=True):
        sizes[node.window_lock_ref > 0] += sum(map(bool, there)) * pool.page_size
        if node.window_lock_ref != (held_by := expected.get(id(node), 0)):
            wrong.append(
                f"a node of {len(node.key)} tokens has window_lock_ref {node.window_lock_ref}, and the windows of "
                f"{held_by} holders reach it"
            )
    return wrong + size_violations(
        sizes, tree.window_protected_size, tree.window_evictable_size, "tokens with window pages"
    )


def size_violations(counted: dict[bool, int], protected: int, evictable: int, tokens: str) -> list[str]:
    """The running counters of a tree, against the tokens of its locked and of its other nodes."""
    if (counted[True], counted[False]) == (protected, evictable):
        return []
    return [
        f"the tree has {counted[True]} protected and {counted[False]} evictable {tokens}, its counters say {protected} and "
        f"{evictable}"
    ]


def reach_violations(state: EngineState, held: Holdings) -> list[str]:
    """Rows that lack a window page of a position that their next token looks back to."""
    pool, holders = state.window_pool, held.holders
    if pool is None:
        return []
    ends = [_next_position(state, holder.of) for holder in holders]
    starts = [max(end - pool.window, 0) for end in ends]
    named = [
        state.rows.table[holder.row, start - start % pool.page_size : end]
        for holder, start, end in zip(holders, starts, ends, strict=True)
    ]
    return [
        f"{holder.name} lacks window pages of positions [{start}, {end})"
        for holder, start, end, there in zip(holders, starts, ends, pool.window_pages_of_each(named), strict=True)
        if not all(there)
    ]


def _next_position(state: EngineState, holder: Request | SessionSlot) -> int:
    """Of the next token that will be computed, or is being computed: it looks back `window` tokens."""
    if isinstance(holder, Request):
        return computed_len(state, holder)
    # Where the next turn may begin: one that was retracted computes its last token once more, if it is its own.
    return max(holder.kv_committed_len - 1, holder.cache_protected_len)


def sum_violations(terms: dict[str, int] | None, of_pool: str) -> list[str]:
    """The equation of the memory check: all other terms add up to `total`. None: there is no such pool."""
    if terms is None or sum(terms.values()) == 2 * terms["total"]:
        return []
    return [f"the terms{of_pool} do not add up: {terms}"]


def _count(owners: PageOwners, held: Holdings) -> list[str]:
    census = page_census(owners)
    names = [holder.name for holder in held.holders]
    return describe(census, names, limit=MOST_OF_A_KIND) if int(census.verdict) else []


MOST_OF_A_KIND = 4
"""Sentences about one kind of violation: the first pages say what happened."""
