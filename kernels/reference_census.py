"""The page census in plain torch, meant to be read, and quick enough for every step on the CPU: pools of hundreds of pages.

Owners have a rank, which says who is named first where a page has several: the free list 1, holder k 3 + k, the tree
above all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

TREE_RANK = 2**30
HIGHEST_PAGE = 2**31 - 1
KINDS = 7


@dataclass(frozen=True)
class CensusTables:
    """The tensors of `census.Census`, with one more place per page: index pool_pages + 1 is every id out of range."""

    owners: torch.Tensor
    free_count: torch.Tensor
    owner_code: torch.Tensor
    other_code: torch.Tensor
    foreign_prefix: torch.Tensor
    counters: torch.Tensor
    verdict: torch.Tensor


def page_census(
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    first: torch.Tensor,
    last: torch.Tensor,
    tree_pages: torch.Tensor,
    free_pages: torch.Tensor,
    pool_pages: int,
    page_size: int,
    prefix_pages: torch.Tensor | None,
) -> CensusTables:
    """See `census.page_census`."""
    held_pages, holders = _pages_of_rows(req_to_token, rows, first, last, page_size)
    pages = torch.cat((free_pages, tree_pages, held_pages))
    ranks = torch.cat(
        (free_pages.new_full(free_pages.shape, 1), tree_pages.new_full(tree_pages.shape, TREE_RANK), holders + 3)
    )
    places = _places(pages, pool_pages)

    owners = torch.bincount(places, minlength=pool_pages + 2).int()
    free_count = torch.bincount(places[: len(free_pages)], minlength=pool_pages + 2).int()
    highest = torch.zeros_like(owners).scatter_reduce_(0, places, ranks, "amax")
    lowest = highest.clone().scatter_reduce_(0, places, ranks, "amin")
    foreign_prefix = torch.zeros((len(rows), 2), dtype=torch.int32, device=rows.device)
    worst: list[torch.Tensor] = []
    if prefix_pages is not None:
        prefix, holder_of = _pages_of_rows(req_to_token, rows, torch.zeros_like(prefix_pages), prefix_pages, page_size)
        places_of_prefix = _places(prefix, pool_pages)
        is_foreign = (highest[places_of_prefix] != TREE_RANK) | (places_of_prefix > pool_pages)
        worst = [prefix[is_foreign]]
        if len(worst[0]):
            _count_foreign(foreign_prefix, worst[0], holder_of[is_foreign].long())

    # The usual case is told early: every page once, nothing else.
    clean = torch.ones_like(owners)
    clean[0] = clean[-1] = 0
    counters = torch.zeros(KINDS + 1, dtype=torch.int32, device=rows.device)
    verdict = torch.zeros((), dtype=torch.int64, device=rows.device)
    if not torch.equal(owners, clean) or any(len(pages) for pages in worst):
        kinds = _violations(pages[places > pool_pages], owners, free_count, *worst)
        for kind in sorted(kinds, reverse=True):
            found = kinds[kind]
            counters[kind] = len(found)
            if len(found):
                verdict = pack_verdict(kind, found.min())
        counters[2] = owners[0]
    return CensusTables(
        owners=owners,
        free_count=free_count,
        owner_code=torch.where(highest == TREE_RANK, 2, highest),
        other_code=torch.where(owners > 1, torch.where(lowest == TREE_RANK, 2, lowest), 0),
        foreign_prefix=foreign_prefix,
        counters=counters,
        verdict=verdict,
    )


def pack_verdict(kind: int, page: torch.Tensor) -> torch.Tensor:
    """See `census.unpack_verdict`."""
    return ((KINDS + 1 - kind) << 32) | (HIGHEST_PAGE - page.to(torch.int64))


def _violations(
    out_of_range: torch.Tensor, owners: torch.Tensor, free_count: torch.Tensor, foreign: torch.Tensor | None = None
) -> dict[int, torch.Tensor]:
    """The pages of every kind of `census.Violation`."""
    owners, free_count = owners[:-1], free_count[:-1]
    referenced = owners - free_count
    real = torch.arange(len(owners), device=owners.device) > 0
    kinds = {
        1: out_of_range,
        2: torch.nonzero(~real & (owners > 0)),
        3: torch.nonzero(real & (referenced > 1)),
        4: torch.nonzero(real & (referenced > 0) & (free_count > 0)),
        5: torch.nonzero(real & (free_count > 1)),
        6: torch.nonzero(real & (owners == 0)),
    }
    return kinds if foreign is None else {**kinds, 7: foreign}


def _count_foreign(foreign_prefix: torch.Tensor, pages: torch.Tensor, holders: torch.Tensor) -> None:
    """Per holder how many foreign leading pages, and the lowest of them."""
    foreign_prefix[:, 0] = torch.bincount(holders, minlength=len(foreign_prefix))
    lowest = torch.full_like(foreign_prefix[:, 1], HIGHEST_PAGE).scatter_reduce_(0, holders, pages, "amin")
    foreign_prefix[:, 1] = torch.where(foreign_prefix[:, 0] > 0, lowest, 0)


def _places(pages: torch.Tensor, pool_pages: int) -> torch.Tensor:
    """Where a page id is counted: at its own index, or at pool_pages + 1 if there is no such page."""
    return pages.masked_fill((pages < 0) | (pages > pool_pages), pool_pages + 1).long()


def _pages_of_rows(
    req_to_token: torch.Tensor, rows: torch.Tensor, first: torch.Tensor, last: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pages at columns [first[k], last[k]) of rows[k], holder after holder, and the number k of each.

    A position outside the page table, and a negative KV index, is page -1.
    """
    counts = (last - first).clamp(min=0)
    holders = torch.repeat_interleave(counts)
    nth_of_holder = torch.arange(len(holders), device=rows.device) - (counts.cumsum(0) - counts)[holders]
    positions = (first[holders] + nth_of_holder) * page_size
    of_rows = rows[holders]
    height, width = req_to_token.shape
    outside = (positions < 0) | (positions >= width) | (of_rows < 0) | (of_rows >= height)
    flat = (of_rows.long() * width + positions).masked_fill(outside, 0)
    kv_indices = req_to_token.reshape(-1)[flat] if height and width else torch.zeros_like(of_rows)
    pages = torch.div(kv_indices, page_size, rounding_mode="floor").masked_fill(outside | (kv_indices < 0), -1)
    return pages, holders.int()
