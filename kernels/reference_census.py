"""The page census page by page, meant to be read: quick enough for every step on the CPU, with pools of hundreds of pages.

Owners have a rank, which says who is named first where a page has several: the free list 1, holder k 3 + k, the tree
above all.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    device, outside = pool.req_to_token.device, pool.pool_pages + 1
    rows = pool.rows.tolist()
    owned = [
        _pages_of_row(pool, *columns) for columns in zip(rows, pool.first.tolist(), pool.last.tolist(), strict=True)
    ]
    ranks: list[list[int]] = [[] for _ in range(outside + 1)]
    """Of each page the ranks of its owners; behind the last page, those of ids that are out of range."""
    out_of_range = []
    claims = [(1, pool.free_pages.tolist()), (TREE_RANK, pool.tree_pages.tolist()), *enumerate(owned, 3)]
    for rank, pages in claims:
        for page in pages:
            ranks[page if 0 <= page < outside else outside].append(rank)
            if not 0 <= page < outside:
                out_of_range.append(page)

    def is_of_tree(page: int) -> bool:
        return 0 <= page < outside and TREE_RANK in ranks[page]

    prefix_pages = [0] * len(rows) if pool.prefix_pages is None else pool.prefix_pages.tolist()
    foreign = [
        [page for page in _pages_of_row(pool, row, 0, end) if not is_of_tree(page)]
        for row, end in zip(rows, prefix_pages, strict=True)
    ]

    def vector(numbers: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(numbers), dtype=torch.int32, device=device)

    owners, free_count = vector(map(len, ranks)), vector(each.count(1) for each in ranks)
    owner_code = vector(_code(max(each, default=0)) for each in ranks)
    other_code = vector(_code(min(each)) if len(each) > 1 else 0 for each in ranks)
    wrong = wrong_pages(owners[:-1], free_count[:-1])
    counters, verdict = _judge(
        {
            Violation.OUT_OF_RANGE: out_of_range,
            Violation.PAGE_ZERO: [0] * len(ranks[0]),
            **{kind: torch.nonzero(mask).flatten().tolist() for kind, mask in wrong.items()},
            Violation.FOREIGN_PREFIX: [page for pages in foreign for page in pages],
        }
    )
    return Census(
        owners=owners[:-1],
        free_count=free_count[:-1],
        owner_code=owner_code[:-1],
        other_code=other_code[:-1],
        out_of_range_codes=torch.stack((owner_code[-1], other_code[-1])),
        foreign_prefix=vector(number for pages in foreign for number in (len(pages), min(pages, default=0))).view(
            -1, 2
        ),
        counters=vector(counters),
        verdict=torch.tensor(verdict, dtype=torch.int64, device=device),
        pool_pages=pool.pool_pages,
    )


def _judge(found: dict[Violation, list[int]]) -> tuple[list[int], int]:
    """Counters by kind, and the verdict: the lowest page of the lowest kind, see `unpack_verdict`."""
    counters, verdict = [0] * (KINDS + 1), 0
    for kind, pages in found.items():
        counters[kind] = len(pages)
        if pages:
            verdict = max(verdict, (KINDS + 1 - kind) << 32 | HIGHEST_PAGE - min(pages))
    return counters, verdict


def _code(rank: int) -> int:
    """The owner code of a rank: they differ for the tree, whose code is 2."""
    return 2 if rank == TREE_RANK else rank


def _pages_of_row(pool: PageOwners, row: int, first: int, last: int) -> list[int]:
    """The pages at columns [first, last); -1 for a position outside the page table, and for a negative KV index."""
    entries = pool.req_to_token[row].tolist() if 0 <= row < len(pool.req_to_token) else []
    places = (column * pool.page_size for column in range(first, last))
    return [entries[n] // pool.page_size if 0 <= n < len(entries) and entries[n] >= 0 else -1 for n in places]


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
