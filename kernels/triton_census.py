"""The Triton twin of `reference_census.py`, for CUDA devices; with TRITON_INTERPRET=1 on the CPU, for tests.

Three launches and nothing the host waits for: clear the tables, mark, settle.

*Mark* raises the rank of every page to that of each of its owners with one atomic maximum, 4 bytes. What that returns
tells the rest: 0 for the first owner, and then nothing more is to be done. Else the lower of both ranks is the owner
that is displaced, and only then the other tables are touched: `displaced_free` or `displaced_held` counts it, `lowest`
keeps the smallest. The outcome does not depend on the order in which owners arrive: the rank ends as the highest, each
other owner is displaced once, and the smallest is displaced if there are two. So a page of a healthy pool costs one
atomic.

*Settle* goes over the pages once, turns ranks into owner codes and displaced owners into counts, in place, and finds
what is wrong page by page; its last programs look up the leading pages of the rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvproof.kernels.reference_census import HIGHEST_PAGE, KINDS, TREE_RANK, Census, PageOwners

BLOCK = 256
SETTLE_BLOCK = 1024
MARKING_PROGRAMS = 4096
"""Rows are split over several programs until there are about this many: enough to fill the largest device."""
HEADER = 16
"""int32 places before the tables: 2 the verdict (int64), 8 the counters, 1 whether any owner was displaced."""

_KINDS: tl.constexpr = tl.constexpr(KINDS)
_TREE_RANK: tl.constexpr = tl.constexpr(TREE_RANK)
_HIGHEST_PAGE: tl.constexpr = tl.constexpr(HIGHEST_PAGE)
_COUNTERS: tl.constexpr = tl.constexpr(2)
_DISPLACED: tl.constexpr = tl.constexpr(10)


@triton.jit
def _report(header, bad, pages, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Count the bad ones and raise the verdict to the lowest of them, see `unpack_verdict`."""
    count = tl.sum(bad.to(tl.int32), 0)
    if count > 0:
        tl.atomic_add(header + _COUNTERS + KIND, count)
        lowest = tl.min(tl.where(bad, pages, _HIGHEST_PAGE), 0).to(tl.int64)
        kind = tl.full([], _KINDS + 1 - KIND, tl.int64)
        tl.atomic_max(header.to(tl.pointer_type(tl.int64)), (kind << 32) | (-lowest + _HIGHEST_PAGE))


@triton.jit
def _mark(header, ranks, displaced_free, displaced_held, lowest, pages, rank, is_page, pool_pages):  # type: ignore[no-untyped-def]
    """Give the pages one more owner, of this rank."""
    exists = (pages >= 0) & (pages <= pool_pages)
    place = tl.where(exists, pages, pool_pages + 1)
    mine = tl.zeros_like(pages) + rank
    before = tl.atomic_max(ranks + place, mine, mask=is_page, sem="relaxed")
    displaces = is_page & (before != 0)
    # One question for all three, since a block must wait for each answer.
    if tl.max((displaces | (is_page & (~exists | (pages == 0)))).to(tl.int32), 0) > 0:
        lower = tl.minimum(before, mine)
        tl.atomic_add(displaced_free + place, 1, mask=displaces & (lower == 1), sem="relaxed")
        tl.atomic_add(displaced_held + place, 1, mask=displaces & (lower != 1), sem="relaxed")
        # Tables start at 0, so the smallest rank is kept as its distance from above.
        tl.atomic_max(lowest + place, -lower + (_TREE_RANK + 1), mask=displaces, sem="relaxed")
        tl.atomic_max(header + _DISPLACED, 1, sem="relaxed")
        _report(header, is_page & ~exists, pages, 1)
        _report(header, is_page & (pages == 0), pages, 2)


@triton.jit
def _pages_at(req_to_token, stride_row, height, width, row, columns, is_column, PAGE_SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The pages at these columns of a row; -1 where there is no such position, or no KV index in it."""
    position = columns.to(tl.int64) * PAGE_SIZE
    rows = row.to(tl.int64) + tl.zeros_like(position)
    inside = is_column & (position >= 0) & (position < width) & (rows >= 0) & (rows < height)
    kv_index = tl.load(req_to_token + rows * stride_row + position, mask=inside, other=-1)
    return tl.where(kv_index < 0, -1, kv_index // PAGE_SIZE)


@triton.jit(do_not_specialize=["free_pages", "trees", "frees", "free_programs", "tree_programs", "splits"])
def _mark_kernel(  # type: ignore[no-untyped-def]
    header, ranks, displaced_free, displaced_held, lowest,
    req_to_token, rows, first, last, tree_pages, free_pages,
    stride_row, height, width, trees, frees, free_programs, tree_programs, splits, pool_pages,
    PAGE_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first programs mark blocks of the free list, the next blocks of the tree's pages, the others parts of rows."""
    program = tl.program_id(0)
    each = tl.arange(0, BLOCK)
    if program < free_programs:
        entry = program * BLOCK + each
        pages = tl.load(free_pages + entry, mask=entry < frees, other=0)
        _mark(header, ranks, displaced_free, displaced_held, lowest, pages, 1, entry < frees, pool_pages)
    elif program < free_programs + tree_programs:
        entry = (program - free_programs) * BLOCK + each
        pages = tl.load(tree_pages + entry, mask=entry < trees, other=0)
        _mark(header, ranks, displaced_free, displaced_held, lowest, pages, _TREE_RANK, entry < trees, pool_pages)
    else:
        part = program - free_programs - tree_programs
        holder = part // splits
        row = tl.load(rows + holder)
        end = tl.load(last + holder)
        for start in range(tl.load(first + holder) + part % splits * BLOCK, end, splits * BLOCK):
            columns = start + each
            pages = _pages_at(
                req_to_token=req_to_token, stride_row=stride_row, height=height, width=width, row=row, columns=columns,
                is_column=columns < end, PAGE_SIZE=PAGE_SIZE,
            )  # fmt: skip
            _mark(header, ranks, displaced_free, displaced_held, lowest, pages, 3 + holder, columns < end, pool_pages)


@triton.jit
def _settle_kernel(  # type: ignore[no-untyped-def]
    header, ranks, displaced_free, displaced_held, lowest, foreign_prefix,
    req_to_token, rows, prefix_pages, stride_row, height, width, page_programs, pool_pages,
    PAGE_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first programs settle blocks of pages, the others look up the leading pages of one holder's row each."""
    program = tl.program_id(0)
    each = tl.arange(0, BLOCK)
    if program < page_programs:
        place = program * BLOCK + each
        in_table = place <= pool_pages + 1
        real = (place > 0) & (place <= pool_pages)
        rank = tl.load(ranks + place, mask=in_table, other=0)
        free_count = (rank == 1).to(tl.int32)
        owners = (rank != 0).to(tl.int32)
        if tl.load(header + _DISPLACED) > 0:
            free_count += tl.load(displaced_free + place, mask=in_table, other=0)
            # Displaced owners that are not the free list, and the highest itself if it is not.
            referenced = tl.load(displaced_held + place, mask=in_table, other=0) + (rank > 1).to(tl.int32)
            owners = free_count + referenced
            kept = tl.load(lowest + place, mask=in_table, other=0)
            other = -kept + (_TREE_RANK + 1)
            other = tl.where(kept == 0, 0, tl.where(other == _TREE_RANK, 2, other))
            tl.store(lowest + place, other, mask=in_table)
            _report(header, real & (referenced > 1), place, 3)
            _report(header, real & (referenced > 0) & (free_count > 0), place, 4)
            _report(header, real & (free_count > 1), place, 5)
        tl.store(displaced_free + place, free_count, mask=in_table)
        tl.store(displaced_held + place, owners, mask=in_table)
        tl.store(ranks + place, tl.full([BLOCK], 2, tl.int32), mask=in_table & (rank == _TREE_RANK))
        _report(header, real & (owners == 0), place, 6)
    else:
        holder = program - page_programs
        row = tl.load(rows + holder)
        end = tl.load(prefix_pages + holder)
        count = 0
        lowest_foreign = _HIGHEST_PAGE
        for start in range(0, end, BLOCK):
            columns = start + each
            pages = _pages_at(
                req_to_token=req_to_token, stride_row=stride_row, height=height, width=width, row=row, columns=columns,
                is_column=columns < end, PAGE_SIZE=PAGE_SIZE,
            )  # fmt: skip
            exists = (columns < end) & (pages >= 0) & (pages <= pool_pages)
            rank = tl.load(ranks + pages, mask=exists, other=0)
            # The programs of the pages may have turned the tree's rank into its code, 2, by now; no other rank is 2.
            foreign = (columns < end) & (rank != _TREE_RANK) & (rank != 2)
            _report(header, foreign, pages, 7)
            count += tl.sum(foreign.to(tl.int32), 0)
            lowest_foreign = tl.minimum(lowest_foreign, tl.min(tl.where(foreign, pages, _HIGHEST_PAGE), 0))
        if count > 0:
            tl.store(foreign_prefix + 2 * holder, count)
            tl.store(foreign_prefix + 2 * holder + 1, lowest_foreign)


def page_census(pool: PageOwners) -> Census:
    """See `census.page_census`."""
    holders, places = len(pool.rows), pool.pool_pages + 2
    height, width = pool.req_to_token.shape
    row_stride = pool.req_to_token.stride(0)
    memory = torch.zeros(HEADER + 4 * places + 2 * holders, dtype=torch.int32, device=pool.req_to_token.device)
    header, tables, foreign_prefix = memory.split((HEADER, 4 * places, 2 * holders))
    tables = tables.view(4, places)
    ranks, lowest, displaced_free, displaced_held = tables

    free_programs = triton.cdiv(len(pool.free_pages), BLOCK)
    tree_programs = triton.cdiv(len(pool.tree_pages), BLOCK)
    blocks_of_row = max(1, triton.cdiv(triton.cdiv(width, pool.page_size), BLOCK))
    splits = max(1, min(blocks_of_row, MARKING_PROGRAMS // max(holders, 1)))
    marking = free_programs + tree_programs + holders * splits
    if marking:
        _mark_kernel[(marking,)](
            header=header, ranks=ranks, displaced_free=displaced_free, displaced_held=displaced_held, lowest=lowest,
            req_to_token=pool.req_to_token, rows=pool.rows, first=pool.first, last=pool.last, tree_pages=pool.tree_pages,
            free_pages=pool.free_pages, stride_row=row_stride, height=height, width=width, trees=len(pool.tree_pages),
            frees=len(pool.free_pages), free_programs=free_programs, tree_programs=tree_programs, splits=splits,
            pool_pages=pool.pool_pages, PAGE_SIZE=pool.page_size, BLOCK=BLOCK,
        )  # fmt: skip
    page_programs = triton.cdiv(places, SETTLE_BLOCK)
    # Without prefix_pages there are no programs that would read them: `first` stands in.
    prefix_pages, prefix_programs = (pool.first, 0) if pool.prefix_pages is None else (pool.prefix_pages, holders)
    _settle_kernel[(page_programs + prefix_programs,)](
        header=header, ranks=ranks, displaced_free=displaced_free, displaced_held=displaced_held, lowest=lowest,
        foreign_prefix=foreign_prefix, req_to_token=pool.req_to_token, rows=pool.rows, prefix_pages=prefix_pages,
        stride_row=row_stride, height=height, width=width, page_programs=page_programs, pool_pages=pool.pool_pages,
        PAGE_SIZE=pool.page_size, BLOCK=SETTLE_BLOCK,
    )  # fmt: skip
    return Census(
        owners=displaced_held[:-1],
        free_count=displaced_free[:-1],
        owner_code=ranks[:-1],
        other_code=lowest[:-1],
        out_of_range_codes=tables[:2, -1],
        foreign_prefix=foreign_prefix.view(holders, 2),
        counters=header[2:10],
        verdict=header[:2].view(torch.int64)[0],
        pool_pages=pool.pool_pages,
    )
