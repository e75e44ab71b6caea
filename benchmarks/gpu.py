"""What the kernels cost on the CUDA device of this machine, beside the floor that its memory sets: `make bench-gpu`.

The floor of a figure is the bytes that must be moved over the copy bandwidth measured in the same run; how the bytes are
counted is written in docs/kernels.md. Every time is the median of repeated runs with its spread (smallest to largest),
measured with device events over graph replays, so what Python takes to launch is not in it; "launched" figures are
launched one by one, with what Python takes. Writes benchmarks/results/<device>.json.

`--smoke` runs everything at tiny sizes, on the CPU where there is no device: it measures nothing and writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from gpu_figures import SMOKE, Bench, Sizes, Work, table_of, write
from rich.console import Console

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Event, Observer
from kvproof.impl.pools import RowPool
from kvproof.impl.runner import ForwardInput
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.transformer_runner import TransformerRunner
from kvproof.kernels.allocation import alloc_decode, alloc_extend, write_req_to_token
from kvproof.kernels.census import PageOwners, VerdictReader, page_census
from kvproof.kernels.paged import (
    PagedKV,
    paged_decode_attention,
    paged_extend_attention,
    paged_kv_store,
    paged_latent_store,
)
from kvproof.kernels.trace_ring import StepRecords, TraceRing

REPEATS = 30
SECTOR = 32
"""Bytes that the memory moves at least, whatever is asked for."""

PAGE_SIZES_AND_WINDOWS = ((1, 0), (16, 0), (16, 1024), (64, 0))


def memory_bandwidth(bench: Bench) -> None:
    """The floor of everything else: bytes over time of a plain copy or of a plain sum, whichever moves more."""
    source = torch.ones(bench.sizes.copy_bytes // 4, dtype=torch.float32, device=bench.device)
    target = torch.empty_like(source)
    works = (
        ("copy", lambda: target.copy_(source), 2 * bench.sizes.copy_bytes),
        ("sum", source.sum, bench.sizes.copy_bytes),
    )
    timed = [(name, bench.time(work), moved) for name, work, moved in works]
    bench.bytes_per_us = max(moved / statistics.median(times) for _, times, moved in timed)
    for name, times, moved in timed:
        bench.add(f"{name} of {bench.sizes.copy_bytes // 2**20} MiB", times, moved)


def entry_bytes(pool: PageOwners) -> int:
    """What a census must read: lists as they lie, and a whole sector for an entry that is alone in it."""
    held = int((pool.last - pool.first).sum())
    of_entry = min(pool.page_size * 4, SECTOR)
    lists = 4 * (len(pool.tree_pages) + len(pool.free_pages)) + 12 * len(pool.rows)
    return held * of_entry + lists


def healthy_pool(bench: Bench, page_size: int) -> PageOwners:
    """A tenth free, a tenth the tree's, the rest in rows of one length, in random order."""
    pool, rows = bench.sizes.census_pages, bench.sizes.census_rows
    pages = torch.randperm(pool, generator=torch.Generator().manual_seed(0)) + 1
    each = pool * 8 // 10 // rows
    held, free, tree = pages.split([each * rows, pool // 10, pool - each * rows - pool // 10])
    req_to_token = torch.zeros((rows + 1, each * page_size), dtype=torch.int32)
    req_to_token[1:] = (held[:, None] * page_size + torch.arange(page_size)).view(rows, -1)
    return PageOwners(
        bench.integers(req_to_token),
        bench.integers(torch.arange(1, rows + 1)),
        bench.integers([0] * rows),
        bench.integers([each] * rows),
        bench.integers(tree),
        bench.integers(free),
        pool,
        page_size,
    )


def composition(pool: PageOwners) -> torch.Tensor:
    """The kernel's question, asked with torch.unique and torch.isin. It waits for the device, as they do."""
    held = torch.div(pool.req_to_token[1:, :: pool.page_size], pool.page_size, rounding_mode="floor").flatten()
    named = torch.cat((held, pool.tree_pages, pool.free_pages))
    _, counts = torch.unique(named, return_counts=True)
    free_and_referenced = torch.isin(pool.free_pages, torch.cat((held, pool.tree_pages))).any()
    every = torch.arange(1, pool.pool_pages + 1, device=named.device, dtype=torch.int32)
    return (counts > 1).any() | free_and_referenced | (~torch.isin(every, named)).any()


def census(bench: Bench) -> None:
    for page_size in (1, 16, 64):
        pool = healthy_pool(bench, page_size)
        work = partial(page_census, pool)
        assert int(work().verdict) == 0, "the pool of the benchmark must be healthy"
        share = 0.6 if page_size == 16 else None
        found = bench.add(f"census, page size {page_size}", bench.time(work), entry_bytes(pool), share)
        bench.add(f"census, page size {page_size}, launched", bench.time_launched(work))
        if page_size == 16:
            times = bench.time_launched(partial(composition, pool))
            bench.add("torch.unique and torch.isin", times, times_of=found)


def allocation(bench: Bench) -> None:
    batch, page_size = bench.sizes.batch, 16
    seq_lens = bench.integers(torch.arange(batch) % 97 + 30)
    last_loc = bench.integers(torch.arange(batch) * page_size + 7)
    free_pages = bench.integers(torch.arange(1, 64 * batch + 1))
    prefix_lens = bench.integers([16] * batch)
    num_tokens = int((seq_lens - prefix_lens).sum())
    decode = partial(alloc_decode, free_pages, seq_lens, last_loc, page_size)
    extend = partial(alloc_extend, free_pages, prefix_lens, seq_lens, last_loc, page_size, num_tokens)
    req_to_token = torch.zeros((batch + 1, 1024), dtype=torch.int32, device=bench.device)
    rows = bench.integers(torch.arange(1, batch + 1))
    kv_indices = extend().kv_indices
    write = partial(write_req_to_token, req_to_token, rows, prefix_lens, seq_lens, kv_indices)
    for name, work in (("alloc_decode", decode), ("alloc_extend", extend), ("write_req_to_token", write)):
        bench.add(f"{name}, batch {batch}", bench.time(work), most_us=20)
        bench.add(f"{name}, batch {batch}, launched", bench.time_launched(work))


def attention_inputs(bench: Bench, batch: int, page_size: int, queries: int) -> tuple[torch.Tensor, PagedKV]:
    """Queries, and full rows of the longest context: pages in random order, as a pool that has run for a while has them."""
    sizes = bench.sizes
    width = -(-sizes.context // page_size)
    cache = ((batch * width + 1) * page_size, sizes.kv_heads, sizes.head_dim)
    k_cache, v_cache = (torch.randn(cache, dtype=torch.bfloat16, device=bench.device) for _ in range(2))
    page_table = bench.integers(torch.randperm(batch * width).view(batch, width) + 1)
    q = torch.randn(queries, sizes.heads, sizes.head_dim, dtype=torch.bfloat16, device=bench.device)
    return q, PagedKV(k_cache, v_cache, page_table, bench.integers([sizes.context] * batch), page_size)


def decode_attention(bench: Bench) -> None:
    sizes = bench.sizes
    for batch, page_size, window in ((b, p, w) for b in (sizes.attention_batch, 1) for p, w in PAGE_SIZES_AND_WINDOWS):
        q, kv = attention_inputs(bench, batch, page_size, queries=batch)
        seen = min(sizes.context, window + 1) if window else sizes.context
        moved = 2 * batch * seen * sizes.kv_heads * sizes.head_dim * q.element_size()
        share = 0.7 if batch == sizes.attention_batch and not window else None
        times = bench.time(partial(paged_decode_attention, q, kv, sizes.head_dim**-0.5, window))
        name = f"decode attention, batch {batch}, context {sizes.context}, page size {page_size}"
        bench.add(name + (f", window {window}" if window else ""), times, moved, share)


def extend_attention(bench: Bench) -> None:
    """Bound by arithmetic, not by memory: told without a floor."""
    new = max(bench.sizes.context // 4, 1)
    prefix = bench.sizes.context - new
    q, kv = attention_inputs(bench, 1, 16, queries=new)
    work = partial(paged_extend_attention, q, kv, bench.integers([prefix]), bench.sizes.head_dim**-0.5)
    bench.add(f"extend attention, {new} tokens behind {prefix}", bench.time(work))


def store(bench: Bench) -> None:
    sizes, dtype = bench.sizes, torch.bfloat16
    tokens = 32 * sizes.batch
    kv_indices = torch.randperm(2 * tokens, device=bench.device)[:tokens]
    k_cache, v_cache = (
        torch.zeros(2 * tokens, sizes.kv_heads, sizes.head_dim, dtype=dtype, device=bench.device) for _ in range(2)
    )
    k, v = (cache[:tokens].clone() for cache in (k_cache, v_cache))
    moved = 4 * tokens * sizes.kv_heads * sizes.head_dim * dtype.itemsize
    bench.add(
        f"kv store, {tokens} tokens", bench.time(lambda: paged_kv_store(k_cache, v_cache, k, v, kv_indices)), moved
    )
    latent_cache = torch.zeros(2 * tokens, 1, 576, dtype=dtype, device=bench.device)
    latent = latent_cache[:tokens].clone()
    times = bench.time(partial(paged_latent_store, latent_cache, latent, kv_indices))
    bench.add(f"latent store, {tokens} tokens", times, 2 * tokens * 576 * dtype.itemsize)


def recording(bench: Bench) -> None:
    """What a step of batch 256 pays for being watched: one append with a page for each request, one census and its verdict."""
    ring = TraceRing(1 << 14, 1 << 16, bench.device)
    numbers = bench.integers(torch.arange(bench.sizes.batch) % 50)
    pages = bench.integers(torch.arange(1, bench.sizes.batch + 1))
    counts = torch.ones_like(numbers)
    records = StepRecords(numbers, 7, numbers, numbers, numbers, numbers, counts, pages)
    append = partial(ring.append, records)
    bench.add(f"trace ring append, batch {bench.sizes.batch}", bench.time(append))
    pool = healthy_pool(bench, page_size=16)
    reader = VerdictReader(bench.device)

    def watched_step() -> None:
        append()
        reader.submit(page_census(pool))
        assert reader.read() is None, "the pool of the benchmark must be healthy"
        ring.drain()

    bench.add("append, census, verdict and drain, launched", bench.time_launched(watched_step))
    reader.drain()
    decode_step = decode_step_of_the_reference(bench)
    alone = statistics.median(bench.time_launched(decode_step))
    both = bench.time_launched(lambda: (decode_step(), watched_step()))
    bench.add("decode step of the small model, recorded and counted", both, most_us=1.02 * alone)


def decode_step_of_the_reference(bench: Bench) -> Work:
    """One decode step of the reference implementation's small model over the whole batch, from launch to tokens."""
    batch, prompt, page_size = bench.sizes.batch, 64, 16
    steps = 2 * (bench.repeats + 4)  # two figures, each with its warm-up
    row_pages = -(-(prompt + steps) // page_size)
    config = EngineConfig(
        page_size=page_size,
        pool_pages=batch * row_pages,
        rows=batch,
        row_width=row_pages * page_size,
        device=str(bench.device),
    )
    rows = RowPool(config.rows, config.row_width, config.row_order)
    positions = torch.arange(config.row_width)
    for row in range(1, batch + 1):
        first_page = 1 + (row - 1) * row_pages
        rows.req_to_token[row] = first_page * page_size + positions
    runner = TransformerRunner(config, rows)
    everyone = list(range(1, batch + 1))
    runner.launch([ForwardInput(row, 0, [3] * prompt) for row in everyone]).tokens()
    return lambda: runner.launch(decode=everyone).tokens()


class Forgets:
    """An observer that reads nothing."""

    def on_event(self, event: Event) -> None:
        pass


def whole_steps(bench: Bench) -> None:
    """A step of the whole engine as a run takes it, books, launches and tokens: first alone, then recorded and counted."""
    batch = bench.sizes.batch
    for what, observer, counted in (("", None, False), (", recorded and counted", Forgets(), True)):
        scheduler = decoding_engine(bench, observer, counted)
        bench.add(f"engine step, batch {batch}{what}, launched", bench.time_launched(scheduler.step))
        assert len(scheduler.running_requests()) == batch, "the requests must not end while they are measured"
        scheduler.settle()


def decoding_engine(bench: Bench, observer: Observer | None, counted: bool) -> Scheduler:
    """The whole batch decodes, with pools on the device."""
    batch, prompt, page_size = bench.sizes.batch, 64, 16
    output = bench.repeats + 8
    row_width = prompt + output + 1
    config = EngineConfig(
        page_size=page_size,
        pool_pages=batch * -(-row_width // page_size),
        rows=batch,
        row_width=row_width,
        radix_cache=False,
        max_prefill_tokens=batch * prompt,
        census_every_step=counted,
        device=str(bench.device),
        pools="device",
    )
    scheduler = Scheduler(config, observer)
    for number in range(batch):
        scheduler.submit(f"r{number}", [1 + number % 9] * prompt, output)
    while len(scheduler.running_requests()) < batch:
        scheduler.step()
    return scheduler


PARTS: tuple[Callable[[Bench], None], ...] = (
    memory_bandwidth,
    census,
    allocation,
    decode_attention,
    extend_attention,
    store,
    recording,
    whole_steps,
)


def measure(bench: Bench) -> None:
    for part in PARTS:
        part(bench)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, also without a device; nothing is written")
    smoke = parser.parse_args().smoke
    on_cuda = torch.cuda.is_available()
    if not on_cuda and not smoke:
        print("skipped: no CUDA device")
        return
    device = torch.device("cuda" if on_cuda else "cpu")
    bench = Bench(device, SMOKE if smoke else Sizes(), repeats=2 if smoke else REPEATS)
    measure(bench)
    name = torch.cuda.get_device_name() if on_cuda else "CPU"
    title = f"{name}: smoke run at tiny sizes, these are no figures" if smoke else name
    Console(width=160).print(table_of(bench.figures, title))
    if not smoke:
        path = write(bench, name)
        print(f"written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
