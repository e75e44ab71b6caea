"""What is drained from a trace ring is what was appended, in order, without what was counted as dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvproof.kernels import reference_trace_ring, trace_ring
from kvproof.kernels.trace_ring import Drained, Record, StepRecords, TraceRing, _Copied, _DirectCopies, _SideCopies

EXAMPLES = 100 if torch.cuda.is_available() else 15
Append = Callable[..., None]


@dataclass(frozen=True)
class Batch:
    """One append: how many pages each of its records moved."""

    page_counts: list[int]
    spare_pages: int = 0

    def records(self, step: int) -> list[Record]:
        """Numbers that name the step and the record, so that any mix-up shows."""
        found = []
        for n, count in enumerate(self.page_counts):
            base = 1000 * step + 10 * n
            pages = tuple(base + 5000 + i for i in range(count))
            found.append(Record(n % 7, step, base + 1, base + 2, base + 3, base + 4, pages))
        return found


batches = st.builds(
    Batch, page_counts=st.lists(st.sampled_from([0, 0, 1, 1, 3, 9]), max_size=6), spare_pages=st.integers(0, 2)
)
# Batches, and whether the ring is drained after them.
runs = st.lists(st.tuples(batches, st.booleans()), max_size=8)


def step_records(batch: Batch, step: int, device: torch.device) -> StepRecords:
    records = batch.records(step)
    kinds, *columns = ([record[place] for record in records] for place in (0, 2, 3, 4, 5))
    pages = [page for record in records for page in record.pages or ()] + [-1] * batch.spare_pages

    def vector(numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=device)

    return StepRecords(vector(kinds), step, *map(vector, columns), vector(batch.page_counts), vector(pages))


def append(ring: TraceRing, batch: Batch, step: int) -> None:
    ring.append(step_records(batch, step, ring.device))


def played(
    ring: TraceRing, run: list[tuple[Batch, bool]], *, waits: bool
) -> tuple[list[Record], list[Record], Drained, int]:
    """What was appended, what was drained, the last drain of it, and how many were appended before that of the run."""
    appended: list[Record] = []
    drained: list[Record] = []
    last_drain = 0
    for step, (batch, drains) in enumerate(run):
        append(ring, batch, step)
        appended += batch.records(step)
        if drains:
            drained += ring.drain(wait=waits).records
            last_drain = len(appended)
    end = ring.drain(wait=True)
    drained += end.records
    return appended, drained, end, last_drain


def require_no_loss_uncounted(appended: list[Record], drained: list[Record], end: Drained) -> int:
    """How many page ids are lost. All is in order, nothing twice, nothing that was not appended, and no loss uncounted."""
    assert len(drained) + end.dropped_records == len(appended)
    lost_pages = 0
    rest = iter(appended)
    for record in drained:
        original = next(found for found in rest if (found.step, found.row) == (record.step, record.row))
        if record.pages is None:
            lost_pages += len(original.pages or ())
            original = original._replace(pages=None)
        assert record == original
    return lost_pages


def check_run(ring: TraceRing, run: list[tuple[Batch, bool]]) -> None:
    """Append and drain; what is left out must be the oldest, and counted."""
    appended, drained, end, last_drain = played(ring, run, waits=True)
    assert require_no_loss_uncounted(appended, drained, end) == end.dropped_pages
    newest = min(len(appended) - last_drain, len(ring.ring))
    assert [record.row for record in end.records] == [record.row for record in appended[len(appended) - newest :]]
    # Page ids are lost only where younger ones took their place.
    page_ids = [len(record.pages or ()) for record in appended]
    for n, record in enumerate(reversed(end.records), start=1):
        if sum(page_ids[len(page_ids) - n :]) <= len(ring.page_ring):
            assert record.pages is not None


@settings(max_examples=200, derandomize=True)
@given(records=st.integers(6, 14), pages=st.integers(1, 30), run=runs)
def test_what_is_drained_is_what_was_appended(records: int, pages: int, run: list[tuple[Batch, bool]]) -> None:
    check_run(TraceRing(records, pages, "cpu"), run)


@settings(max_examples=EXAMPLES, derandomize=True)
@given(records=st.integers(6, 14), pages=st.integers(1, 30), run=st.lists(batches, max_size=4))
def test_the_append_kernel_writes_what_the_reference_writes(
    device: str, records: int, pages: int, run: list[Batch]
) -> None:
    check_append(device, records, pages, run)


def test_a_batch_of_several_blocks_is_appended_in_order(device: str) -> None:
    check_append(device, 700, 900, [Batch([n % 3 for n in range(count)]) for count in (300, 600)])


def check_append(device: str, records: int, pages: int, run: list[Batch]) -> None:
    from kvproof.kernels import triton_trace_ring

    rings = [TraceRing(records, pages, where) for where in ("cpu", device)]
    for step, batch in enumerate(run):
        for ring, implementation in zip(rings, (reference_trace_ring, triton_trace_ring), strict=True):
            records = step_records(batch, step, ring.device)
            implementation.append(ring.header, ring.ring, ring.page_ring, records)
    for name in ("header", "ring", "page_ring"):
        assert getattr(rings[0], name).tolist() == getattr(rings[1], name).tolist(), name


class Overtaken(_DirectCopies):
    """A copy during which the device appends on."""

    def __init__(self, ring: TraceRing, meanwhile: Callable[[], None]) -> None:
        super().__init__(ring)
        self._meanwhile = meanwhile

    def arrived(self, wait: bool) -> Iterator[_Copied]:
        for copied in super().arrived(wait):
            self._meanwhile()
            yield copied._replace(header_after=self._ring.header.tolist())


def test_what_is_overwritten_while_it_is_copied_is_dropped_and_counted() -> None:
    ring = TraceRing(4, 100, "cpu")
    append(ring, Batch([1, 1, 1]), 0)
    ring._copies = Overtaken(ring, lambda: append(ring, Batch([1, 1, 1]), 1))
    drained = ring.drain()
    assert drained.records == Batch([1, 1, 1]).records(0)[2:]
    assert drained.dropped_records == 2
    ring._copies = _DirectCopies(ring)
    drained = ring.drain()
    assert drained.records == Batch([1, 1, 1]).records(1)
    assert drained.dropped_records == 2


class LateEvent:
    """Stands in for torch.cuda.Event: what it marks has arrived when it is asked for the second time."""

    def __init__(self) -> None:
        self.asked = 0

    def record(self, stream: object) -> None: ...

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def synchronize(self) -> None:
        self.asked = 2


class NoStream:
    def __init__(self, device: object) -> None: ...

    def wait_stream(self, stream: object) -> None: ...


@pytest.fixture
def late_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies to pinned memory whose events lag behind, on a machine without a device."""
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.cuda, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(trace_ring, "_pinned", lambda tensor: tensor)


def test_copies_beside_the_device_arrive_two_drains_later(late_device: None) -> None:
    ring = TraceRing(8, 8, "cpu")
    ring._copies = _SideCopies(ring)
    append(ring, Batch([1, 2]), 0)
    # Drain 1 asks for the ends of the ring, 2 finds them not arrived, 3 asks for what is new, 4 finds it.
    assert [len(ring.drain().records) for _ in range(3)] == [0, 0, 0]
    append(ring, Batch([3]), 1)
    assert ring.drain().records == Batch([1, 2]).records(0)
    assert ring.drain(wait=True).records == Batch([3]).records(1)
    assert ring.drain(wait=True).records == []


@settings(
    max_examples=100,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records=st.integers(6, 14), pages=st.integers(1, 30), run=runs)
def test_copies_beside_the_device_lose_nothing_uncounted(
    late_device: None, records: int, pages: int, run: list[tuple[Batch, bool]]
) -> None:
    ring = TraceRing(records, pages, "cpu")
    ring._copies = _SideCopies(ring)
    appended, drained, end, _ = played(ring, run, waits=False)
    require_no_loss_uncounted(appended, drained, end)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^records is 0, but must be at least 1$"):
        TraceRing(0, 1, "cpu")
    ring = TraceRing(2, 8, "cpu")
    with pytest.raises(ValueError, match=r"^3 records are appended at once, but the ring holds 2$"):
        append(ring, Batch([0, 0, 0]), 0)
    one, two = torch.tensor([1]), torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"^rows has 2 entries, but the number of records is 1$"):
        ring.append(StepRecords(one, 0, two, one, one, one, one, one))
