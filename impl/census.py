"""The census of a step: who owns each page, asked of the page table, the tree and the free list; no counter is trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kvproof.impl.radix_cache import RadixCache
from kvproof.impl.state import EngineState
from kvproof.kernels.census import describe, page_census


class CensusViolation(RuntimeError):
    """A page has no owner, or more than one: the step that just ended lost or shared it."""


@dataclass(frozen=True)
class Holder:
    """A request or a slot, which owns positions [cache_protected_len, kv_allocated_len) of its row."""

    name: str
    row: int
    cache_protected_len: int
    kv_allocated_len: int


def take_census(state: EngineState) -> None:
    """Raise if a page has not exactly one owner, or a row begins with pages that the tree does not own."""
    page_size = state.config.page_size
    found = holders(state)
    first = [holder.cache_protected_len // page_size for holder in found]
    census = page_census(
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
    if int(census.verdict):
        sentences = describe(census, [holder.name for holder in found], limit=4)
        raise CensusViolation(f"step {state.tell.step}: {'; '.join(sentences)}")


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
