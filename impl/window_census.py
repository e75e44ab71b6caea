"""What the books tell of the window pool: whether every row still has the pages that its window needs, and locks."""

from __future__ import annotations

from kvproof.impl.page_ownership import Holder, Holdings, lock_holders
from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.impl.window_eviction import computed_len
from kvproof.impl.window_pool import WindowAllocator
from kvproof.impl.window_tree import WindowTree


def window_book_violations(state: EngineState, held: Holdings) -> list[str]:
    """Nothing if there is no window pool."""
    pool = state.window_pool
    if pool is None:
        return []
    return [
        *_reach_violations(state, pool, held.holders),
        *_tree_violations(state, pool, held),
    ]


def _reach_violations(state: EngineState, pool: WindowAllocator, holders: list[Holder]) -> list[str]:
    """Rows that lack a window page of a position that their next token looks back to."""
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


def _tree_violations(state: EngineState, pool: WindowAllocator, held: Holdings) -> list[str]:
    """Window locks that are not the number of holders whose window reaches the node, and counters that no recount gives."""
    if not isinstance(state.prefixes, RadixCache) or not isinstance(state.prefixes.tree, WindowTree):
        return []
    tree = state.prefixes.tree
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
    if (sizes[True], sizes[False]) != (tree.window_protected_size, tree.window_evictable_size):
        wrong.append(
            f"the tree has {sizes[True]} protected and {sizes[False]} evictable tokens with window pages, its counters "
            f"say {tree.window_protected_size} and {tree.window_evictable_size}"
        )
    return wrong
