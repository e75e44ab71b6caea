"""Page census: one pass over everything that can own a page, and for every page how many owners it has, and which.

A sum over owners stays balanced while one page has two owners and another has none. The census is no sum: each page is
looked at by itself, on the device, in the step that broke it. The host learns an 8-byte verdict one step later and
looks at the tables of that step only when the verdict is bad.

Owners of a page are the free list, the tree, and holders: a holder is a request or a session slot, number k in the
order of `rows`, and owns the pages of its row at page columns [first[k], last[k]). Owner codes: 0 nobody, 1 the free
list, 2 the tree, 3 + k holder k.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from kvproof.kernels import checks, reference_census
from kvproof.kernels.reference_census import CensusTables

NOBODY, FREE_LIST, TREE, FIRST_HOLDER = 0, 1, 2, 3
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


def page_census(
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    first: torch.Tensor,
    last: torch.Tensor,
    tree_pages: torch.Tensor,
    free_pages: torch.Tensor,
    pool_pages: int,
    page_size: int,
    prefix_pages: torch.Tensor | None = None,
) -> Census:
    """Count the owners of the pages 1 to pool_pages. Never waits for the device.

    req_to_token int32 [rows + 1, row width] holds KV indices; the page of column c of a row is its entry at c * page_size,
    divided by page_size. rows, first, last int32 [n]: holder k owns columns [first[k], last[k]) of rows[k].
    tree_pages int32 [t] and free_pages int32 [f] are page ids in any order. prefix_pages int32 [n]: that many leading
    pages of rows[k] must be the tree's.
    """
    inputs = {"rows": rows, "first": first, "last": last, "tree_pages": tree_pages, "free_pages": free_pages}
    if prefix_pages is not None:
        inputs["prefix_pages"] = prefix_pages
    checks.one_device(req_to_token=req_to_token, **inputs)
    checks.dimensions("req_to_token", req_to_token, "rows", "positions")
    for name, vector in inputs.items():
        checks.dimensions(name, vector, "entries")
    for name, tensor in {"req_to_token": req_to_token, **inputs}.items():
        checks.dtype_of(name, tensor, (torch.int32,))
        checks.contiguous_last(name, tensor)
    for name in ("first", "last", "prefix_pages"):
        if name in inputs:
            checks.length_of(name, inputs[name], len(rows), "the number of holders in rows is")
    checks.at_least("page_size", page_size, 1)
    checks.at_least("pool_pages", pool_pages, 1)
    tables = _implementation(req_to_token)(
        req_to_token, rows, first, last, tree_pages, free_pages, pool_pages, page_size, prefix_pages
    )
    real = slice(0, pool_pages + 1)
    return Census(
        owners=tables.owners[real],
        free_count=tables.free_count[real],
        owner_code=tables.owner_code[real],
        other_code=tables.other_code[real],
        out_of_range_codes=tables.out_of_range_codes,
        foreign_prefix=tables.foreign_prefix,
        counters=tables.counters,
        verdict=tables.verdict,
        pool_pages=pool_pages,
    )


def _implementation(tensor: torch.Tensor) -> Callable[..., CensusTables]:
    if not tensor.is_cuda:
        return reference_census.page_census
    from kvproof.kernels import triton_census

    implementation: Callable[..., CensusTables] = triton_census.page_census
    return implementation


def unpack_verdict(verdict: int) -> tuple[Violation, int] | None:
    """The kind and the lowest page id of that kind; None when clean.

    Packed as (8 - kind) << 32 | (2**31 - 1 - page): the lowest kind, and of it the lowest page, makes the largest
    number, so the device needs one atomic maximum over a verdict that starts at 0. The page may be negative.
    """
    if verdict == 0:
        return None
    return Violation(KINDS + 1 - (verdict >> 32)), HIGHEST_PAGE - (verdict & 0xFFFF_FFFF)


class VerdictReader:
    """Reads verdicts without making the device wait: the verdict of step k, copied aside at once, is read at step k + 1.

    On the CPU there is nothing to wait for, and the verdict of a step is read in that step. In each step: `submit` the
    census, then `read`; after the last one, `drain`.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._on_cuda = torch.device(device).type == "cuda"
        # Two in flight: the one being copied and the one being read.
        self._pinned = torch.zeros(2, dtype=torch.int64, pin_memory=self._on_cuda)
        self._waiting: deque[tuple[Census, torch.Tensor, torch.cuda.Event | None]] = deque()
        self._submitted = 0

    def submit(self, census: Census) -> None:
        """Start copying the verdict of this step to the host, behind the census on the current stream."""
        if self._on_cuda and len(self._waiting) == 2:
            raise ValueError("2 verdicts wait to be read, and there is room for 2: read between submits")
        if not self._on_cuda:
            self._waiting.append((census, census.verdict, None))
            return
        place = self._pinned[self._submitted % 2]
        place.copy_(census.verdict, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        self._waiting.append((census, place, copied))
        self._submitted += 1

    def read(self) -> Census | None:
        """The oldest census that is bad, of those whose verdict is due: all but the newest, on the CPU all."""
        return self._oldest_bad(keep=1 if self._on_cuda else 0)

    def drain(self) -> Census | None:
        """The oldest census that is bad, of all: waits for the device."""
        return self._oldest_bad(keep=0)

    def _oldest_bad(self, keep: int) -> Census | None:
        while len(self._waiting) > keep:
            census, verdict, copied = self._waiting.popleft()
            if copied is not None:
                copied.synchronize()
            if int(verdict) != 0:
                return census
        return None


def describe(census: Census, holders: Sequence[str] | None = None, limit: int = 20) -> list[str]:
    """Sentences about every violation, with page ids and owners: at most `limit` of a kind. Waits for the device.

    `holders` names holder k; without it, it is called "holder k".
    """

    def name(code: int) -> str:
        if code < FIRST_HOLDER:
            return ("nobody", "the free list", "the tree")[code]
        return holders[code - FIRST_HOLDER] if holders is not None else f"holder {code - FIRST_HOLDER}"

    def who(highest: int, lowest: int) -> str:
        return name(highest) if lowest in (NOBODY, highest) else f"{name(lowest)} and {name(highest)}"

    sentences = []
    for kind in Violation:
        pages = _pages_of_kind(census, kind)
        for page in pages[:limit]:
            sentences.append(_sentence(census, kind, page, name, who))
        if len(pages) > limit:
            sentences.append(f"and {len(pages) - limit} more of this kind ({kind.name})")
    return sentences


def _pages_of_kind(census: Census, kind: Violation) -> list[int]:
    """The pages to tell about; for FOREIGN_PREFIX the holders; for OUT_OF_RANGE the lowest id, if there is one."""
    if not int(census.counters[kind]):
        return []
    if kind is Violation.OUT_OF_RANGE:
        verdict = unpack_verdict(int(census.verdict))
        assert verdict is not None, "a counter that is not zero makes a verdict"
        return [verdict[1]]  # the lowest kind of all, so the verdict is about it
    if kind is Violation.PAGE_ZERO:
        return [0]
    if kind is Violation.FOREIGN_PREFIX:
        return _places(census.foreign_prefix[:, 0] > 0)
    referenced = census.owners - census.free_count
    bad = {
        Violation.TWO_OWNERS: referenced > 1,
        Violation.FREE_AND_REFERENCED: (referenced > 0) & (census.free_count > 0),
        Violation.DUPLICATE_FREE: census.free_count > 1,
        Violation.NO_OWNER: census.owners == 0,
    }[kind]
    return [page for page in _places(bad) if page != 0]


def _sentence(
    census: Census, kind: Violation, page: int, name: Callable[[int], str], who: Callable[[int, int], str]
) -> str:
    if kind is Violation.FOREIGN_PREFIX:
        count, lowest = census.foreign_prefix[page].tolist()
        pages = f"1 leading page that the tree does not own: page {lowest}"
        if count > 1:
            pages = f"{count} leading pages that the tree does not own: page {lowest} and others"
        return f"{name(FIRST_HOLDER + page)} builds on {pages}"
    if kind is Violation.OUT_OF_RANGE:
        mentions = int(census.counters[kind])
        times = "1 time" if mentions == 1 else f"{mentions} ids in all"
        owners = who(*census.out_of_range_codes.tolist())
        return (
            f"page id {page} is out of range, the pool has pages 1 to {census.pool_pages}: {times}, named by {owners}"
        )
    count, free_count = int(census.owners[page]), int(census.free_count[page])
    owners = who(int(census.owner_code[page]), int(census.other_code[page]))
    if kind is Violation.PAGE_ZERO:
        return f"page 0 is padding, but {owners} has it"
    if kind is Violation.TWO_OWNERS:
        return f"page {page} has {count} owners: {owners}" + (", and others between them" if count > 2 else "")
    if kind is Violation.FREE_AND_REFERENCED:
        return f"page {page} is free and in use: {owners}"
    if kind is Violation.DUPLICATE_FREE:
        return f"page {page} is {free_count} times in the free list"
    return f"page {page} has no owner"


def _places(mask: torch.Tensor) -> list[int]:
    places: list[int] = torch.nonzero(mask).flatten().tolist()
    return places
