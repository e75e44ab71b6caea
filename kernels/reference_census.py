"""The page census in plain torch, meant to be read, and quick enough for every step on the CPU: pools of hundreds of pages.

Owners have a rank, which says who is named first where a page has several: the free list 1, holder k 3 + k, the tree
above all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch

TREE_RANK = 2**30
HIGHEST_PAGE = 2**31 - 1


class Violation(IntEnum):
    """What can be wrong, most basic first: the verdict names the lowest that occurs. Values index `Census.counters`."""

    OUT_OF_RANGE = 1
    """A page id outside [0, pool_pages], or a position outside the page table (told as page -1); counted per mention."""
    PAGE_ZERO = 2
    """Page 0 is padding, but an owner lists it; counted per mention."""
    TWO_OWNERS = 3
    """A page that tree and holders list more than once altogether."""
    FREE_AND_REFERENCED = 4
    """A page of the free list that the tree or a holder has as well."""
    DUPLICATE_FREE = 5
    """A page that the free list has more than once."""
    NO_OWNER = 6
    """A page that nobody lists: lost."""
    FOREIGN_PREFIX = 7
    """A leading page of a row, below prefix_pages, that the tree does not own; counted per row and page."""


KINDS = len(Violation)


@dataclass(frozen=True)
class PageOwners:
    """All that can own a page: rows of a page table, the tree, the free list. int32, on one device; nothing is checked.

    Holder k, a request or a session slot, owns the pages at columns [first[k], last[k]) of rows[k].
    """

    req_to_token: torch.Tensor
    """[rows + 1, row width]: KV indices. The page of column c of a row is its entry at c * page_size, over page_size."""
    rows: torch.Tensor
    """[holders]: the row of each holder."""
    first: torch.Tensor
    """[holders], in page columns."""
    last: torch.Tensor
    """[holders], in page columns."""
    tree_pages: torch.Tensor
    """[t]: page ids in any order."""
    free_pages: torch.Tensor
    """[f]: page ids in any order."""
    pool_pages: int
    """Pages of the pool: ids 1 to pool_pages."""
    page_size: int
    """Positions per page."""
    prefix_pages: torch.Tensor | None = None
    """[holders]: that many leading pages of a holder's row must be the tree's; None: nothing is asked of them."""


@dataclass(frozen=True)
class Census:
    """Tensors on the device of the page table. Page ids index the first four; page 0 is padding and should be 0 there.

    Where a page has several owners, `owner_code` is the highest and `other_code` the lowest of them in the order free
    list, holder 0, holder 1, ..., tree; `other_code` is 0 where there is one owner or none.
    """

    owners: torch.Tensor
    """int32 [pool_pages + 1]: how many times the page is owned; 1 is right."""
    free_count: torch.Tensor
    """int32 [pool_pages + 1]: how many of these are entries of the free list."""
    owner_code: torch.Tensor
    """int32 [pool_pages + 1]."""
    other_code: torch.Tensor
    """int32 [pool_pages + 1]."""
    out_of_range_codes: torch.Tensor
    """int32 [2]: highest and lowest owner of page ids out of range; the second is 0 where there is one mention."""
    foreign_prefix: torch.Tensor
    """int32 [holders, 2]: how many leading pages of its row the tree does not own, and the lowest of them."""
    counters: torch.Tensor
    """int32 [8]: violations by kind; entry 0 is unused."""
    verdict: torch.Tensor
    """int64, no dimension: 0 when clean, else a kind and its lowest page, see `unpack_verdict`."""
    pool_pages: int


def page_census(pool: PageOwners) -> Census:
    """See `census.page_census`."""
    rows, first, tree_pages, free_pages = pool.rows, pool.first, pool.tree_pages, pool.free_pages
    pool_pages = pool.pool_pages
    prefix_pages = torch.zeros_like(first) if pool.prefix_pages is None else pool.prefix_pages
    # Leading pages and owned pages are read alike: a holder has two ranges of columns.
    pages, counts = _pages_of_columns(
        pool.req_to_token,
        torch.cat((rows, rows)),
        torch.cat((torch.zeros_like(first), first)),
        torch.cat((prefix_pages, pool.last)),
        pool.page_size,
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
    found: dict[Violation, torch.Tensor] = {}
    other_code = torch.zeros_like(owners)
    foreign_prefix = torch.zeros((len(rows), 2), dtype=torch.int32, device=rows.device)
    if not clean:
        lowest = highest.clone().scatter_reduce_(0, named_places, ranks, "amin")
        other_code = _code(lowest).masked_fill_(owners < 2, 0)
        holders = torch.repeat_interleave(counts[: len(rows)])
        _count_foreign(foreign_prefix, prefix[is_foreign], holders[is_foreign])
        found = {
            Violation.OUT_OF_RANGE: named[named_places > pool_pages],
            Violation.PAGE_ZERO: named[named_places == 0],
            **{kind: torch.nonzero(wrong) for kind, wrong in wrong_pages(owners[:-1], free_count[:-1]).items()},
            Violation.FOREIGN_PREFIX: prefix[is_foreign],
        }
    owner_code = _code(highest)
    counters, verdict = _judge(found, rows.device)
    return Census(
        owners=owners[:-1],
        free_count=free_count[:-1],
        owner_code=owner_code[:-1],
        other_code=other_code[:-1],
        out_of_range_codes=torch.stack((owner_code[-1], other_code[-1])),
        foreign_prefix=foreign_prefix,
        counters=counters,
        verdict=verdict,
        pool_pages=pool_pages,
    )


def _judge(found: dict[Violation, torch.Tensor], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Counters by kind, and the verdict: the lowest page of the lowest kind."""
    counters = torch.zeros(KINDS + 1, dtype=torch.int32, device=device)
    verdict = torch.zeros((), dtype=torch.int64, device=device)
    for kind, pages in sorted(found.items(), reverse=True):
        if len(pages):
            counters[kind] = len(pages)
            verdict = pack_verdict(kind, pages.min())
    return counters, verdict


def _ranks_of_holders(rows: torch.Tensor) -> torch.Tensor:
    return torch.arange(3, len(rows) + 3, dtype=torch.int32, device=rows.device)


def _code(ranks: torch.Tensor) -> torch.Tensor:
    """Owner codes of ranks: they differ for the tree, whose code is 2."""
    return ranks.masked_fill(ranks == TREE_RANK, 2)


def pack_verdict(kind: Violation, page: torch.Tensor) -> torch.Tensor:
    """See `unpack_verdict`."""
    return ((KINDS + 1 - kind) << 32) | (HIGHEST_PAGE - page.to(torch.int64))


def unpack_verdict(verdict: int) -> tuple[Violation, int] | None:
    """The kind and the lowest page id of that kind; None when clean.

    Packed as (8 - kind) << 32 | (2**31 - 1 - page): the lowest kind, and of it the lowest page, makes the largest
    number, so the device needs one atomic maximum over a verdict that starts at 0. The page may be negative.
    """
    if verdict == 0:
        return None
    return Violation(KINDS + 1 - (verdict >> 32)), HIGHEST_PAGE - (verdict & 0xFFFF_FFFF)


def wrong_pages(owners: torch.Tensor, free_count: torch.Tensor) -> dict[Violation, torch.Tensor]:
    """Which pages [pool_pages + 1] are wrong by how many owners they have and how often they are free; never page 0."""
    referenced = owners - free_count
    real = torch.arange(len(owners), device=owners.device) > 0
    return {
        Violation.TWO_OWNERS: real & (referenced > 1),
        Violation.FREE_AND_REFERENCED: real & (referenced > 0) & (free_count > 0),
        Violation.DUPLICATE_FREE: real & (free_count > 1),
        Violation.NO_OWNER: real & (owners == 0),
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
