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
    out_of_range_codes: torch.Tensor
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
    if prefix_pages is None:
        prefix_pages = torch.zeros_like(first)
    # Leading pages and owned pages are read alike: a holder has two ranges of columns.
    pages, counts = _pages_of_columns(
        req_to_token,
        torch.cat((rows, rows)),
        torch.cat((torch.zeros_like(first), first)),
        torch.cat((prefix_pages, last)),
        page_size,
    )
    leading = int(counts[: len(rows)].sum())
    pages = torch.cat((pages, tree_pages, free_pages))
    places = _places(pages, pool_pages)
    prefix, prefix_places = pages[:leading], places[:leading]
    named, named_places = pages[leading:], places[leading:]
    free_places = places[len(places) - len(free_pages) :]
    held = len(named) - len(tree_pages) - len(free_pages)
    ranks_of_held = torch.repeat_interleave(_ranks_of_holders(rows), counts[len(rows) :], output_size=held)
    ranks = torch.cat((ranks_of_held, torch.full_like(tree_pages, TREE_RANK), torch.ones_like(free_pages)))

    owners = torch.bincount(named_places, minlength=pool_pages + 2).int()
    free_count = torch.bincount(free_places, minlength=pool_pages + 2).int()
    highest = torch.zeros_like(owners).scatter_reduce_(0, named_places, ranks, "amax")
    is_foreign = (highest[prefix_places] != TREE_RANK) | (prefix_places > pool_pages)

    # As many mentions as pages, and every page mentioned: then each is mentioned once, and nothing else is.
    every_page_once = len(named) == pool_pages and int(owners[1:-1].amin()) == 1
    clean = every_page_once and not bool(is_foreign.any())
    found = {} if clean else _violations(named[named_places > pool_pages], owners, free_count, prefix[is_foreign])
    other_code = torch.zeros_like(owners)
    foreign_prefix = torch.zeros((len(rows), 2), dtype=torch.int32, device=rows.device)
    if not clean:
        lowest = highest.clone().scatter_reduce_(0, named_places, ranks, "amin")
        other_code = _code(lowest).masked_fill_(owners < 2, 0)
        holders = torch.repeat_interleave(counts[: len(rows)])
        _count_foreign(foreign_prefix, prefix[is_foreign], holders[is_foreign])
    owner_code = _code(highest)
    counters, verdict = _judge(found, page_zero=owners[0])
    return CensusTables(
        owners=owners,
        free_count=free_count,
        owner_code=owner_code,
        other_code=other_code,
        out_of_range_codes=torch.stack((owner_code[-1], other_code[-1])),
        foreign_prefix=foreign_prefix,
        counters=counters,
        verdict=verdict,
    )


def _judge(found: dict[int, torch.Tensor], page_zero: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Counters by kind, and the verdict: the lowest page of the lowest kind."""
    counters = torch.zeros(KINDS + 1, dtype=torch.int32, device=page_zero.device)
    verdict = torch.zeros((), dtype=torch.int64, device=page_zero.device)
    for kind, pages in sorted(found.items(), reverse=True):
        if len(pages):
            counters[kind] = len(pages)
            verdict = pack_verdict(kind, pages.min())
    counters[2] = page_zero
    return counters, verdict


def _ranks_of_holders(rows: torch.Tensor) -> torch.Tensor:
    return torch.arange(3, len(rows) + 3, dtype=torch.int32, device=rows.device)


def _code(ranks: torch.Tensor) -> torch.Tensor:
    """Owner codes of ranks: they differ for the tree, whose code is 2."""
    return ranks.masked_fill(ranks == TREE_RANK, 2)


def pack_verdict(kind: int, page: torch.Tensor) -> torch.Tensor:
    """See `census.unpack_verdict`."""
    return ((KINDS + 1 - kind) << 32) | (HIGHEST_PAGE - page.to(torch.int64))


def _violations(
    out_of_range: torch.Tensor, owners: torch.Tensor, free_count: torch.Tensor, foreign: torch.Tensor
) -> dict[int, torch.Tensor]:
    """The pages of every kind of `census.Violation`."""
    owners, free_count = owners[:-1], free_count[:-1]
    referenced = owners - free_count
    real = torch.arange(len(owners), device=owners.device) > 0
    return {
        1: out_of_range,
        2: torch.nonzero(~real & (owners > 0)),
        3: torch.nonzero(real & (referenced > 1)),
        4: torch.nonzero(real & (referenced > 0) & (free_count > 0)),
        5: torch.nonzero(real & (free_count > 1)),
        6: torch.nonzero(real & (owners == 0)),
        7: foreign,
    }


def _count_foreign(foreign_prefix: torch.Tensor, pages: torch.Tensor, holders: torch.Tensor) -> None:
    """Per holder how many foreign leading pages, and the lowest of them."""
    foreign_prefix[:, 0] = torch.bincount(holders, minlength=len(foreign_prefix))
    lowest = torch.full_like(foreign_prefix[:, 1], HIGHEST_PAGE).scatter_reduce_(0, holders, pages, "amin")
    foreign_prefix[:, 1] = torch.where(foreign_prefix[:, 0] > 0, lowest, 0)


def _places(pages: torch.Tensor, pool_pages: int) -> torch.Tensor:
    """Where a page id is counted: at its own index, or at pool_pages + 1 if there is no such page."""
    return pages.masked_fill((pages < 0) | (pages > pool_pages), pool_pages + 1).long()


def _pages_of_columns(
    req_to_token: torch.Tensor, rows: torch.Tensor, first: torch.Tensor, last: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pages at columns [first[k], last[k]) of rows[k], one range after another, and how many each range has.

    A position outside the page table, and a negative KV index, is page -1.
    """
    height, width = req_to_token.shape
    counts = (last - first).clamp_(min=0)
    # The n-th position of all ranges together stands n - before[k] columns behind first[k].
    before = counts.cumsum(0, dtype=torch.int32) - counts
    ranges = torch.repeat_interleave(counts)
    columns = torch.arange(len(ranges), dtype=torch.int32, device=rows.device) + (first - before).index_select(
        0, ranges
    )
    row_of, position = rows.index_select(0, ranges), columns * page_size
    row_inside, position_inside = row_of.clamp(0, height - 1), position.clamp(0, width - 1)
    kv_indices = req_to_token[row_inside, position_inside]
    no_page = (row_inside != row_of) | (position_inside != position) | (kv_indices < 0)
    return torch.div(kv_indices, page_size, rounding_mode="floor").masked_fill_(no_page, -1), counts
