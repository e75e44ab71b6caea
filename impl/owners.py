"""Who owns the pages of a pool and who locks the nodes of the tree: what the census of either pool asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.kernels.census import PageOwners, describe, page_census


@dataclass(frozen=True)
class Holder:
    """A request or a slot that has a row; what it owns of it, its lengths and its cursor say."""

    name: str
    row: int
    of: Request | SessionSlot


def row_holders(state: EngineState) -> list[Holder]:
    """The live requests, and the slots that no live request borrows from."""
    live = [Holder(f"request {r.rid}", r.req_pool_idx, r) for r in state.live_requests() if r.req_pool_idx is not None]
    borrowed = {holder.row for holder in live}
    return live + [
        Holder(f"session {session_id}", slot.req_pool_idx, slot)
        for session_id, slot in state.cache.slots.items()
        if slot.req_pool_idx is not None and slot.req_pool_idx not in borrowed
    ]


def page_owner_violations(
    req_to_token: torch.Tensor,
    holders: Sequence[Holder],
    first: Sequence[int],
    last: Sequence[int],
    tree_pages: torch.Tensor,
    free_list: Sequence[int],
    pool_pages: int,
    page_size: int,
    prefix_pages: Sequence[int] | None = None,
) -> list[str]:
    """Pages without exactly one owner, and rows that do not begin with `prefix_pages` pages of the tree.

    Each holder owns the pages [first, last) of its row.
    """
    owners = PageOwners(
        req_to_token,
        _int32([holder.row for holder in holders]),
        _int32(first),
        _int32(last),
        tree_pages,
        _int32(free_list),
        pool_pages,
        page_size,
        prefix_pages=None if prefix_pages is None else _int32(prefix_pages),
    )
    census = page_census(owners)
    return describe(census, [holder.name for holder in holders], limit=4) if int(census.verdict) else []


def lock_holders(state: EngineState, window: int | None = None) -> Counter[int]:
    """By the id of a node, how many requests and slots lock it: all at or below it, or those whose window reaches it."""
    holders: list[Request | SessionSlot] = [*state.live_requests(), *state.cache.slots.values()]
    found: Counter[int] = Counter()
    for holder in holders:
        node, seen = holder.last_node, 0
        while node is not None and node.parent is not None and (window is None or seen < window):
            found[id(node)] += 1
            seen += len(node.key)
            node = node.parent
    return found


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
