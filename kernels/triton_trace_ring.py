"""The Triton twin of `reference_trace_ring.py`, for CUDA devices; with TRITON_INTERPRET=1 on the CPU, for tests.

One program appends a whole batch, so records keep their order without a second launch and the ends of the ring have
one writer. A decode batch is a few hundred records of 64 bytes: microseconds, and other kernels run beside it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvproof.kernels.reference_trace_ring import StepRecords

BLOCK = 256


@triton.jit(do_not_specialize=["step", "count"])
def _append_kernel(  # type: ignore[no-untyped-def]
    header, ring, page_ring, kinds, rows, committed_lens, allocated_lens, protected_lens, page_counts, pages,
    step, count, capacity, page_capacity, BLOCK: tl.constexpr,
):  # fmt: skip
    """Append `count` records and the page ids that they moved."""
    each = tl.arange(0, BLOCK)
    records_before = tl.load(header + 1)
    pages_before = tl.load(header + 3)
    total = tl.zeros([], tl.int64)
    for start in range(0, count, BLOCK):
        total += tl.sum(tl.load(page_counts + start + each, mask=start + each < count, other=0).to(tl.int64), 0)

    # Said before anything is overwritten: a reader that finds this number after its copy knows what may be torn in it.
    tl.atomic_xchg(header + 0, records_before + count, sem="acq_rel", scope="sys")
    tl.atomic_xchg(header + 2, pages_before + total, sem="acq_rel", scope="sys")
    tl.debug_barrier()

    first_page = pages_before
    for start in range(0, count, BLOCK):
        entry = start + each
        is_record = entry < count
        moved = tl.load(page_counts + entry, mask=is_record, other=0).to(tl.int64)
        line = ring + (records_before + entry) % capacity * 8
        tl.store(line + 0, tl.load(kinds + entry, mask=is_record, other=0).to(tl.int64), mask=is_record)
        tl.store(line + 1, tl.zeros([BLOCK], tl.int64) + step, mask=is_record)
        tl.store(line + 2, tl.load(rows + entry, mask=is_record, other=0).to(tl.int64), mask=is_record)
        tl.store(line + 3, tl.load(committed_lens + entry, mask=is_record, other=0).to(tl.int64), mask=is_record)
        tl.store(line + 4, tl.load(allocated_lens + entry, mask=is_record, other=0).to(tl.int64), mask=is_record)
        tl.store(line + 5, tl.load(protected_lens + entry, mask=is_record, other=0).to(tl.int64), mask=is_record)
        tl.store(line + 6, first_page + tl.cumsum(moved, 0) - moved, mask=is_record)
        tl.store(line + 7, moved, mask=is_record)
        first_page += tl.sum(moved, 0)
    # Of more page ids than the ring holds, the last ones stay: lanes never write one place twice.
    for start in range(tl.maximum(total - page_capacity, 0), total, BLOCK):
        entry = start + each
        page = tl.load(pages + entry, mask=entry < total, other=0)
        tl.store(page_ring + (pages_before + entry) % page_capacity, page.to(tl.int32), mask=entry < total)

    tl.debug_barrier()
    # The page ids first: a record that can be seen has its page ids.
    tl.atomic_xchg(header + 3, pages_before + total, sem="acq_rel", scope="sys")
    tl.atomic_xchg(header + 1, records_before + count, sem="acq_rel", scope="sys")


def append(header: torch.Tensor, ring: torch.Tensor, page_ring: torch.Tensor, records: StepRecords) -> None:
    """See `reference_trace_ring.append`."""
    if len(records.kinds):
        _append_kernel[(1,)](
            header=header, ring=ring, page_ring=page_ring, kinds=records.kinds, rows=records.rows,
            committed_lens=records.kv_committed_lens, allocated_lens=records.kv_allocated_lens,
            protected_lens=records.cache_protected_lens, page_counts=records.page_counts, pages=records.pages,
            step=records.step, count=len(records.kinds), capacity=len(ring), page_capacity=len(page_ring), BLOCK=BLOCK,
        )  # fmt: skip
