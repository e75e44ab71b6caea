"""Appending to a trace ring in plain torch, for the CPU. See `trace_ring` for what the tensors hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch

RESERVED_RECORDS, WRITTEN_RECORDS, RESERVED_PAGES, WRITTEN_PAGES = range(4)
"""Places in the header of a ring: how many records and page ids were ever appended."""


@dataclass(frozen=True)
class StepRecords:
    """The records of one step, an entry of each vector per record: int32 or int64 [n], all on one device.

    Record i moved page_counts[i] pages. Nothing is checked here: `TraceRing.append` does that.
    """

    kinds: torch.Tensor
    step: int
    rows: torch.Tensor
    kv_committed_lens: torch.Tensor
    """Lengths are in tokens."""
    kv_allocated_lens: torch.Tensor
    cache_protected_lens: torch.Tensor
    page_counts: torch.Tensor
    pages: torch.Tensor
    """int32 or int64: page ids, record after record. May be longer than the sum of page_counts, which only the device
    knows: a free list can be given as it is."""


def append(header: torch.Tensor, ring: torch.Tensor, page_ring: torch.Tensor, records: StepRecords) -> None:
    """Record n goes to place n mod capacity, and so do page ids; what was there is overwritten."""
    page_counts = records.page_counts.long()
    count, total = len(page_counts), int(page_counts.sum())
    _, records_before, _, pages_before = header.tolist()
    ends = page_counts.cumsum(0)
    columns = (
        records.kinds,
        torch.full_like(page_counts, records.step),
        records.rows,
        records.kv_committed_lens,
        records.kv_allocated_lens,
        records.cache_protected_lens,
        pages_before + ends - page_counts,
        page_counts,
    )
    lines = torch.stack([column.long() for column in columns], dim=1)
    ring[(records_before + torch.arange(count)) % len(ring)] = lines
    # More page ids than the ring holds: the first ones are lost, as if they had been overwritten.
    kept = torch.arange(max(0, total - len(page_ring)), total)
    page_ring[(pages_before + kept) % len(page_ring)] = records.pages[kept].to(page_ring.dtype)
    header[RESERVED_RECORDS] = header[WRITTEN_RECORDS] = records_before + count
    header[RESERVED_PAGES] = header[WRITTEN_PAGES] = pages_before + total
