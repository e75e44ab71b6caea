"""What only a device shows: kernels behind the public entries, real sizes, streams that do not wait, captured graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kvproof.kernels import reference_census
from kvproof.kernels.allocation import alloc_decode, alloc_extend, write_req_to_token
from kvproof.kernels.census import PageOwners, VerdictReader, Violation, describe, page_census, unpack_verdict
from kvproof.kernels.paged import (
    PagedKV,
    paged_decode_attention,
    paged_extend_attention,
    paged_kv_store,
    paged_latent_store,
)
from kvproof.kernels.trace_ring import StepRecords, TraceRing


def on_device(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.cuda() for tensor in tensors]


def int32(numbers: object) -> torch.Tensor:
    return torch.as_tensor(numbers).to(torch.int32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("batch", [1, 24])
def test_attention_through_the_entries_is_what_the_cpu_computes(batch: int, window: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    page_size, heads, kv_heads, head_dim, new = 16, 8, 2, 128, 7
    seq_lens = torch.randint(new, 3000, (batch,), generator=random)
    width = int(seq_lens.max()) // page_size + 1
    table = int32(torch.randperm(batch * width, generator=random).view(batch, width) + 1)
    caches = [
        torch.randn((batch * width + 1) * page_size, kv_heads, head_dim, generator=random).to(dtype) for _ in "kv"
    ]
    q = torch.randn(batch * new, heads, head_dim, generator=random).to(dtype)
    tensors = (*caches, table, seq_lens)
    kv, kv_on_device = PagedKV(*tensors, page_size), PagedKV(*on_device(*tensors), page_size)
    first = q[:batch].contiguous()
    expected = paged_decode_attention(first, kv, 0.1, window)
    got = paged_decode_attention(first.cuda(), kv_on_device, 0.1, window)
    torch.testing.assert_close(got.cpu(), expected, atol=2e-2, rtol=2e-2)
    expected = paged_extend_attention(q, kv, seq_lens - new, 0.1, window)
    got = paged_extend_attention(q.cuda(), kv_on_device, (seq_lens - new).cuda(), 0.1, window)
    torch.testing.assert_close(got.cpu(), expected, atol=2e-2, rtol=2e-2)


def test_stores_and_allocation_through_the_entries_are_what_the_cpu_does() -> None:
    lists = (range(1, 900), [0, 5, 64], [700, 6, 64], [-1, 900 * 16 + 4, -1])
    for where in (torch.Tensor.cpu, torch.Tensor.cuda):
        arguments = [where(int32(numbers)) for numbers in lists]
        kv_indices, taken = alloc_extend(*arguments, 16, 701)
        table = where(torch.zeros(4, 1024, dtype=torch.int32))
        write_req_to_token(table, where(int32([3, 1, 2])), arguments[1], arguments[2], kv_indices)
        decoded = alloc_decode(arguments[0], arguments[2] + 1, arguments[3], 16)
        cache = [where(torch.zeros(15000, 2, 64)) for _ in "kv"]
        lines = where(torch.arange(701 * 2 * 64).view(701, 2, 64).float())
        paged_kv_store(*cache, lines, -lines, kv_indices)
        paged_latent_store(cache[1].view(15000, 128), lines.view(701, 128)[:9], kv_indices[:9])
        result = [kv_indices, taken, table, *decoded, *cache]
        if where is torch.Tensor.cpu:
            expected = result
    for host, device in zip(expected, result, strict=True):
        assert torch.equal(host, device.cpu())


def large_pool(pages: int = 200_000, rows: int = 512, page_size: int = 16) -> PageOwners:
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(1)) + 1
    each = pages // 2 // rows
    held, rest = order[: each * rows], order[each * rows :]
    table = torch.zeros((rows + 1, each * page_size), dtype=torch.int32)
    table[1:] = int32((held[:, None] * page_size + torch.arange(page_size)).view(rows, -1))
    half = len(rest) // 2
    vectors = (range(1, rows + 1), [0] * rows, [each] * rows, rest[:half], rest[half:])
    return PageOwners(table.cuda(), *on_device(*map(int32, vectors)), pages, page_size)


def test_a_large_census_is_what_the_reference_counts() -> None:
    pool = large_pool()
    assert int(page_census(pool).verdict) == 0
    # Thousands of collisions at once, many on one page: atomics must not lose any, whatever their order.
    pool.tree_pages[1000:6000] = pool.tree_pages[0]
    pool.free_pages[:3000] = pool.free_pages[3000:6000]
    pool.req_to_token[5:9] = pool.req_to_token[9:13]
    for _ in range(5):
        got = page_census(pool)
        expected = reference_census.page_census(pool)
        assert torch.equal(got.counters, expected.counters)
        assert torch.equal(got.verdict, expected.verdict)
        for name in ("owners", "free_count", "owner_code", "other_code"):
            assert torch.equal(getattr(got, name), getattr(expected, name)), name


def test_a_verdict_is_read_one_step_later_and_without_waiting() -> None:
    # Made first: copies from the host wait for the device.
    pool, healthy = large_pool(20_000, 64), large_pool(20_000, 64)
    reader = VerdictReader("cuda")
    reader.submit(page_census(pool))
    assert reader.read() is None
    lost = int(pool.free_pages[7])
    pool = replace(pool, free_pages=torch.cat((pool.free_pages[:7], pool.free_pages[8:])))
    reader.submit(page_census(pool))
    assert reader.read() is None
    # The device is kept busy: what is read next must not wait for it.
    torch.cuda._sleep(200_000_000)
    busy = torch.cuda.Event()
    busy.record()
    reader.submit(page_census(healthy))
    bad = reader.read()
    assert not busy.query(), "reading the verdict of the step before waited for the step in flight"
    assert unpack_verdict(int(bad.verdict)) == (Violation.NO_OWNER, lost)
    assert describe(bad) == [f"page {lost} has no owner"]
    assert reader.drain() is None


def test_a_census_can_be_captured_in_a_graph() -> None:
    pool = large_pool(20_000, 64)
    page_census(pool)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        census = page_census(pool)
    graph.replay()
    assert int(census.verdict) == 0
    pool.free_pages[0] = 0
    graph.replay()
    assert unpack_verdict(int(census.verdict)) == (Violation.PAGE_ZERO, 0)


def append(ring: TraceRing, step: int, count: int) -> None:
    lengths = torch.arange(count, device="cuda") + step * count
    ring.append(StepRecords(lengths, step, lengths, lengths, lengths, lengths, torch.ones_like(lengths), lengths))


@pytest.mark.parametrize("capacity", [64, 4096])
def test_a_ring_drained_beside_its_appends_loses_nothing_uncounted(capacity: int) -> None:
    """The small ring is overtaken while it is copied; the large one holds all."""
    ring = TraceRing(capacity, capacity, "cuda")
    records = []
    for step in range(2000):
        append(ring, step, 16)
        records += ring.drain().records
        if step % 500 == 0:
            torch.cuda.synchronize()
    end = ring.drain(wait=True)
    records += end.records
    assert len(records) + end.dropped_records == 2000 * 16
    rows = [record.row for record in records]
    assert rows == sorted(set(rows))
    assert rows[-1] == 2000 * 16 - 1
    for record in records:
        assert record.step == record.row // 16
        assert record.kv_committed_len == record.cache_protected_len == record.row
        assert record.pages in (None, (record.row,))


def test_draining_does_not_wait_for_the_device() -> None:
    ring = TraceRing(64, 64, "cuda")
    append(ring, 0, 4)
    torch.cuda._sleep(200_000_000)
    busy = torch.cuda.Event()
    busy.record()
    append(ring, 1, 4)
    ring.drain()
    ring.drain()
    assert not busy.query(), "a drain waited for the step in flight"
    assert [record.row for record in ring.drain(wait=True).records][-1] == 7


def test_of_more_page_ids_than_the_ring_holds_the_last_ones_stay() -> None:
    """Lanes that wrote one place twice would leave whichever came last, which only a device shows."""
    ring = TraceRing(8, 64, "cuda")
    one = torch.ones(1, dtype=torch.int64, device="cuda")
    pages = torch.arange(5000, device="cuda")
    ring.append(StepRecords(one, 0, one, one, one, one, one * 5000, pages))
    places = torch.arange(5000 - 64, 5000)
    assert ring.page_ring[(places % 64).cuda()].tolist() == places.tolist()
    drained = ring.drain(wait=True)
    assert (drained.records[0].pages, drained.dropped_pages) == (None, 5000)
