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

import torch

from kvproof.kernels import checks
from kvproof.kernels.implementation import implementation_of
from kvproof.kernels.reference_census import Census, PageOwners, Violation, unpack_verdict, wrong_pages

NOBODY, FREE_LIST, TREE, FIRST_HOLDER = 0, 1, 2, 3


def page_census(pool: PageOwners) -> Census:
    """Count the owners of the pages 1 to pool_pages. Never waits for the device. ValueError tells what does not fit."""
    _check(pool)
    result: Census = implementation_of("census", pool.req_to_token).page_census(pool)
    return result


def _check(pool: PageOwners) -> None:
    tensors = {name: value for name, value in vars(pool).items() if isinstance(value, torch.Tensor)}
    checks.one_device(**tensors)
    for name, tensor in tensors.items():
        checks.dimensions(name, tensor, *(("rows", "positions") if name == "req_to_token" else ("entries",)))
        checks.dtype_of(name, tensor, (torch.int32,))
        checks.contiguous_last(name, tensor)
    for name in ("first", "last", "prefix_pages"):
        if name in tensors:
            checks.length_of(name, tensors[name], len(pool.rows), "the number of holders in rows is")
    checks.at_least("page_size", pool.page_size, 1)
    checks.at_least("pool_pages", pool.pool_pages, 1)


class VerdictReader:
    """Reads verdicts without making the device wait: the verdict of step k, copied aside at once, is read at step k + 1.

    On the CPU there is nothing to wait for, and it is read no earlier, so that a run is the same everywhere. In each step:
    `submit` the census, then `read`; after the last one, `drain`.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._on_cuda = torch.device(device).type == "cuda"
        # Two in flight: the one being copied and the one being read.
        self._pinned = torch.zeros(2, dtype=torch.int64, pin_memory=self._on_cuda)
        self._waiting: deque[tuple[Census, torch.Tensor, torch.cuda.Event | None]] = deque()
        self._submitted = 0

    def submit(self, census: Census) -> None:
        """Start copying the verdict of this step to the host, behind the census on the current stream."""
        if len(self._waiting) == 2:
            raise ValueError("2 verdicts wait to be read, and there is room for 2: read between submits")
        place = self._pinned[self._submitted % 2]
        place.copy_(census.verdict, non_blocking=True)
        copied = None
        if self._on_cuda:
            copied = torch.cuda.Event()
            copied.record()
        self._waiting.append((census, place, copied))
        self._submitted += 1

    def read(self) -> Census | None:
        """The oldest census that is bad, of those whose verdict is due: all but the newest."""
        return self._oldest_bad(keep=1)

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
    return _places(wrong_pages(census.owners, census.free_count)[kind])


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
