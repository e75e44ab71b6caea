"""Appending to a trace ring in plain torch, for the CPU. See `trace_ring` for what the tensors hold."""

from __future__ import annotations

import torch

RESERVED_RECORDS, WRITTEN_RECORDS, RESERVED_PAGES, WRITTEN_PAGES = range(4)
"""Places in the header of a ring: how many records and page ids were ever appended."""


def append(
    header: torch.Tensor,
    ring: torch.Tensor,
    page_ring: torch.Tensor,
    columns: tuple[torch.Tensor, ...],
    step: int,
    page_counts: torch.Tensor,
    pages: torch.Tensor,
) -> None:
    """Record n goes to place n mod capacity, and so do page ids; what was there is overwritten.

    `columns` are kind, row, kv_committed_len, kv_allocated_len and cache_protected_len, [n] each.
    """
    count, total = len(page_counts), int(page_counts.sum())
    _, records_before, _, pages_before = header.tolist()
    ends = page_counts.long().cumsum(0)
    kind, row, committed, allocated, protected = (column.long() for column in columns)
    records = torch.stack(
        (
            kind,
            torch.full_like(kind, step),
            row,
            committed,
            allocated,
            protected,
            pages_before + ends - page_counts,
            page_counts.long(),
        ),
        dim=1,
    )
    ring[(records_before + torch.arange(count)) % len(ring)] = records
    # More page ids than the ring holds: the first ones are lost, as if they had been overwritten.
    kept = torch.arange(max(0, total - len(page_ring)), total)
    page_ring[(pages_before + kept) % len(page_ring)] = pages[kept].to(page_ring.dtype)
    header[RESERVED_RECORDS] = header[WRITTEN_RECORDS] = records_before + count
    header[RESERVED_PAGES] = header[WRITTEN_PAGES] = pages_before + total
