"""Trace ring: what a step did, appended on the device and drained while later steps run.

The device never waits for the host: a ring that is not drained in time overwrites its oldest records. The host never
waits for the device: `drain` hands out what has arrived, and starts the next copy. What was overwritten before it was
drained is counted, never silent.

A record is 8 numbers of 8 bytes, see `Record`; the page ids that it moved lie in a ring of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from kvproof.kernels import checks
from kvproof.kernels.implementation import implementation_of
from kvproof.kernels.reference_trace_ring import (
    RESERVED_PAGES,
    RESERVED_RECORDS,
    WRITTEN_PAGES,
    WRITTEN_RECORDS,
    StepRecords,
)

RECORD_WIDTH = 8


class Record(NamedTuple):
    """One event. `pages` is None where the page ids were overwritten though the record was not."""

    kind: int
    step: int
    row: int
    kv_committed_len: int
    kv_allocated_len: int
    cache_protected_len: int
    pages: tuple[int, ...] | None


@dataclass
class Drained:
    """What arrived since the last drain, in the order in which it was appended, after what was lost before it."""

    records: list[Record] = field(default_factory=list)
    dropped_records: int = 0
    """Records that were overwritten, altogether since the ring was made."""
    dropped_pages: int = 0
    """Page ids of drained records that were overwritten, altogether since the ring was made."""


class TraceRing:
    """A ring of `records` events and `pages` page ids on a device. `append` on one stream; `drain` from one thread."""

    def __init__(self, records: int, pages: int, device: torch.device | str) -> None:
        checks.at_least("records", records, 1)
        checks.at_least("pages", pages, 1)
        self.device = torch.device(device)
        self.ring = torch.zeros((records, RECORD_WIDTH), dtype=torch.int64, device=device)
        self.page_ring = torch.zeros(pages, dtype=torch.int32, device=device)
        self.header = torch.zeros(4, dtype=torch.int64, device=device)
        self._drained = 0
        self._drained_pages = 0
        self._dropped_records = 0
        self._dropped_pages = 0
        self._copies = _SideCopies(self) if self.device.type == "cuda" else _DirectCopies(self)

    def append(self, records: StepRecords) -> None:
        """Append the records of a step, which lie on the ring's device. ValueError tells what does not fit."""
        vectors = {name: value for name, value in vars(records).items() if isinstance(value, torch.Tensor)}
        checks.one_device(ring=self.ring, **vectors)
        pages = vectors.pop("pages")
        checks.index_vectors(len(records.kinds), "the number of records", **vectors)
        checks.index_vectors(len(pages), "the number of pages", pages=pages)
        if len(records.kinds) > len(self.ring):
            raise ValueError(f"{len(records.kinds)} records are appended at once, but the ring holds {len(self.ring)}")
        implementation_of("trace_ring", self.ring).append(self.header, self.ring, self.page_ring, records)

    def drain(self, wait: bool = False) -> Drained:
        """What has arrived on the host by now. `wait`: everything that was appended before this call, on this stream.

        On the device two copies follow each other on a stream of their own, first the ends of the ring, then what is
        new, so a drain without `wait` hands out what was there two drains ago.
        """
        drained = Drained()
        for copied in self._copies.arrived(wait):
            self._hand_out(copied, drained)
        drained.dropped_records, drained.dropped_pages = self._dropped_records, self._dropped_pages
        return drained

    def new_records(self, header: list[int]) -> range:
        """Sequence numbers of the records that are new and not yet overwritten, by this header."""
        end = header[WRITTEN_RECORDS]
        return range(max(self._drained, end - len(self.ring)), end)

    def new_pages(self, header: list[int]) -> range:
        """Sequence numbers of the page ids that are new and not yet overwritten, by this header."""
        end = header[WRITTEN_PAGES]
        return range(max(self._drained_pages, end - len(self.page_ring)), end)

    def _hand_out(self, copied: _Copied, drained: Drained) -> None:
        """Records of a copy that lies between two readings of the header: the later one tells what may be torn in it."""
        span, page_span = self.new_records(copied.header_before), self.new_pages(copied.header_before)
        oldest = copied.header_after[RESERVED_RECORDS] - len(self.ring)
        oldest_page = max(copied.header_after[RESERVED_PAGES] - len(self.page_ring), page_span.start)
        first = min(max(span.start, oldest), span.stop)
        self._dropped_records += first - self._drained
        self._drained = span.stop
        page_ids: list[int] = copied.pages.tolist()
        for kind, step, row, committed, allocated, protected, begin, count in copied.records[
            first - span.start :
        ].tolist():
            pages: tuple[int, ...] | None = ()
            if count and begin >= oldest_page:
                pages = tuple(page_ids[begin - page_span.start :][:count])
            elif count:
                pages = None
                self._dropped_pages += count
            self._drained_pages = begin + count
            drained.records.append(Record(kind, step, row, committed, allocated, protected, pages))


class _Copied(NamedTuple):
    header_before: list[int]
    records: torch.Tensor
    pages: torch.Tensor
    header_after: list[int]


class _DirectCopies:
    """On the CPU the ring can be read as it is."""

    def __init__(self, ring: TraceRing) -> None:
        self._ring = ring

    def arrived(self, wait: bool) -> Iterator[_Copied]:
        ring = self._ring
        header = ring.header.tolist()
        records = torch.cat(_slices(ring.ring, ring.new_records(header)))
        yield _Copied(header, records, torch.cat(_slices(ring.page_ring, ring.new_pages(header))), header)


class _SideCopies:
    """Copies to pinned memory on a stream of their own: the header, and once it is there, what it says is new.

    They do not wait for the stream that appends, so a copy can be overtaken: the header is read once more behind it.
    """

    def __init__(self, ring: TraceRing) -> None:
        self._ring = ring
        self._stream = torch.cuda.Stream(ring.device)
        self._headers = _pinned(torch.zeros((2, 4), dtype=torch.int64))
        self._records = _pinned(torch.zeros(ring.ring.shape, dtype=torch.int64))
        self._pages = _pinned(torch.zeros(ring.page_ring.shape, dtype=torch.int32))
        self._under_way: torch.cuda.Event | None = None
        self._spans: tuple[range, range] | None = None
        """What is being copied; None while it is the header."""

    def arrived(self, wait: bool) -> Iterator[_Copied]:
        """Push the copies on as far as they go without waiting; with `wait`, one round more, behind this stream."""
        yield from self._advance(wait)
        if wait:
            self._stream.wait_stream(torch.cuda.current_stream(self._ring.device))
            self._copy_header()
            yield from self._advance(wait)
        elif self._under_way is None:
            self._copy_header()

    def _advance(self, wait: bool) -> Iterator[_Copied]:
        while self._under_way is not None:
            if wait:
                self._under_way.synchronize()
            elif not self._under_way.query():
                return
            self._under_way = None
            if self._spans is None:
                self._copy_what_is_new()
                continue
            span, page_span = self._spans
            self._spans = None
            before, after = self._headers.tolist()
            yield _Copied(before, self._records[: len(span)], self._pages[: len(page_span)], after)

    def _copy_header(self) -> None:
        with torch.cuda.stream(self._stream):
            self._headers[0].copy_(self._ring.header, non_blocking=True)
        self._mark()

    def _copy_what_is_new(self) -> None:
        ring, header = self._ring, self._headers[0].tolist()
        self._spans = ring.new_records(header), ring.new_pages(header)
        with torch.cuda.stream(self._stream):
            for pinned, source, span in zip(
                (self._records, self._pages), (ring.ring, ring.page_ring), self._spans, strict=True
            ):
                begin = 0
                for part in _slices(source, span):
                    pinned[begin : begin + len(part)].copy_(part, non_blocking=True)
                    begin += len(part)
            self._headers[1].copy_(ring.header, non_blocking=True)
        self._mark()

    def _mark(self) -> None:
        self._under_way = torch.cuda.Event()
        self._under_way.record(self._stream)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Host memory that the device copies into while the host continues."""
    return tensor.pin_memory()


def _slices(ring: torch.Tensor, span: range) -> tuple[torch.Tensor, torch.Tensor]:
    """The entries with these sequence numbers: up to the end of the ring, and on from its start."""
    begin = span.start % len(ring)
    before_end = min(len(span), len(ring) - begin)
    return ring[begin : begin + before_end], ring[: len(span) - before_end]
