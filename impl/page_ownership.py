"""Who owns the pages of a pool and who locks the nodes of the tree: what the census of either pool asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from kvproof.impl.device_stream import DeviceStream
from kvproof.impl.pools import NO_INDICES, KVIndices
from kvproof.impl.radix import TreeNode
from kvproof.impl.request import Request
from kvproof.impl.session import SessionSlot
from kvproof.impl.state import EngineState
from kvproof.impl.window_pool import WindowAllocator
from kvproof.kernels.census import PageOwners


class Holder(NamedTuple):
    """A request or a slot that has a row; what it owns of it, its lengths and its cursor say."""

    kind: str
    id: str
    row: int
    of: Request | SessionSlot

    @property
    def name(self) -> str:
        return f"{self.kind} {self.id}"


class Holdings(NamedTuple):
    """Who may own pages at the end of a step: looked up once for all that a census asks."""

    holders: list[Holder]
    nodes: list[TreeNode]
    """Of the tree, all but its root."""

    @classmethod
    def of(cls, state: EngineState) -> Holdings:
        return cls(row_holders(state), state.prefixes.tree.nodes())


@dataclass(frozen=True)
class Tables:
    """Where pages are looked up, of the books or of a device: page table, free lists, window map. int32."""

    req_to_token: torch.Tensor
    free_pages: torch.Tensor
    full_to_window: torch.Tensor | None = None
    window_free_pages: torch.Tensor | None = None
    stream: DeviceStream = field(default_factory=lambda: DeviceStream("cpu"))
    """Brings what the books tell (holders, their lengths, the tree's pages) to where the tables are."""


def row_holders(state: EngineState) -> list[Holder]:
    """The live requests, and the slots that no live request borrows from."""
    live = [Holder("request", r.rid, r.req_pool_idx, r) for r in state.live_requests() if r.req_pool_idx is not None]
    borrowed = {holder.row for holder in live}
    return live + [
        Holder("session", session_id, slot.req_pool_idx, slot)
        for session_id, slot in state.cache.slots.items()
        if slot.req_pool_idx is not None and slot.req_pool_idx not in borrowed
    ]


def owned_columns(holders: Sequence[Holder], page_size: int) -> tuple[list[int], list[int]]:
    """Of each holder's row, in pages: where what it owns begins, and before what it ends. Before it are the tree's pages."""
    first = [holder.of.cache_protected_len // page_size for holder in holders]
    return first, [-(-holder.of.kv_allocated_len // page_size) for holder in holders]


def owned_window_columns(holders: Sequence[Holder], page_size: int) -> tuple[list[int], list[int]]:
    """Of each holder, in pages: what it owns in the window pool, from the window cursor or the end of the tree's pages on."""
    first = [-(-max(holder.of.cache_protected_len, holder.of.swa_evicted_seqlen) // page_size) for holder in holders]
    _, last = owned_columns(holders, page_size)
    return first, [max(*ends) for ends in zip(first, last, strict=True)]


def page_owners(state: EngineState, held: Holdings, tables: Tables) -> PageOwners:
    """The full pool's."""
    page_size = state.config.page_size
    first, last = owned_columns(held.holders, page_size)
    rows, first_there, last_there = _uploaded(tables, [holder.row for holder in held.holders], first, last)
    return PageOwners(
        tables.req_to_token,
        rows,
        first_there,
        last_there,
        tables.stream.upload(torch.from_numpy(tree_pages(held, page_size))),
        tables.free_pages,
        state.config.pool_pages,
        page_size,
        prefix_pages=first_there,
    )


def window_page_owners(pool: WindowAllocator, held: Holdings, tables: Tables) -> PageOwners:
    """The window pool's: the page table is translated by the map first, one entry per page."""
    assert tables.full_to_window is not None and tables.window_free_pages is not None  # of an engine with a window pool
    page_size = pool.page_size
    first, last = owned_window_columns(held.holders, page_size)
    rows, first_there, last_there = _uploaded(tables, [holder.row for holder in held.holders], first, last)
    return PageOwners(
        _translated(tables.req_to_token[:, ::page_size] // page_size, tables.full_to_window),
        rows,
        first_there,
        last_there,
        tables.stream.upload(torch.from_numpy(window_pages_of_tree(held, pool))),
        tables.window_free_pages,
        pool.window_pages,
        page_size=1,
    )


def lock_holders(state: EngineState, window: int | None = None) -> dict[int, int]:
    """By the id of a node, how many requests and slots lock it: all at or below it, or those whose window reaches it."""
    holders: list[Request | SessionSlot] = [*state.live_requests(), *state.cache.slots.values()]
    found: dict[int, int] = {}
    for holder in holders:
        node, seen = holder.last_node, 0
        while node is not None and node.parent is not None and (window is None or seen < window):
            found[id(node)] = found.get(id(node), 0) + 1
            seen += len(node.key)
            node = node.parent
    return found


def tree_pages(held: Holdings, page_size: int) -> KVIndices:
    """The pages of the tree, each by its first slot."""
    return np.concatenate([NO_INDICES, *(node.value[::page_size] for node in held.nodes)]) // page_size


def window_pages_of_tree(held: Holdings, pool: WindowAllocator) -> KVIndices:
    """The window pages that pages of the tree have; a tombstone has none."""
    found = pool.mapped(tree_pages(held, pool.page_size))
    return found[found > 0]


def _translated(pages: torch.Tensor, full_to_window: torch.Tensor) -> torch.Tensor:
    """The window page of each page; -1 for what is no page of the pool, so that the census tells it."""
    exists = (pages >= 0) & (pages < len(full_to_window))
    return torch.where(exists, full_to_window[torch.where(exists, pages, 0).long()], -1)


def _uploaded(tables: Tables, *columns: list[int]) -> list[torch.Tensor]:
    return tables.stream.upload_columns(*columns, dtype=torch.int32)
