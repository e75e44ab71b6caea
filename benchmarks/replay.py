"""How fast a recorded trace is judged, by the compiled checker and by the interpreted one: `make bench-replay`.

A workload is recorded on the reference implementation, once with pages of 16 tokens and once with pages of one; then it is
repeated under fresh names until it has a million events (between two of them the tree evicts all that it holds, so the pool
is as at the start). The loop is measured on columns in memory; parsing and the step from columns to the loop's arrays are
measured apart.

Seconds are of processor time of one core, medians of repeated runs with their spread. Writes benchmarks/results/replay.md.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from measuring import CLI, machine, say

from kvproof.conformance.columnar_events import batches_of
from kvproof.conformance.compiled.build import checker_source, compiled_judge
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.columns import Names, arrays_of, batches
from kvproof.conformance.pagebook import TREE
from kvproof.conformance.replay import Replayer, replay
from kvproof.conformance.trace_io import read_trace, write_trace
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.trace import Event

HERE = Path(__file__).parent
PAGE = HERE / "results" / "replay.md"
WORKLOAD = HERE.parent / "examples" / "mooncake_conversation_excerpt.jsonl"
EVENTS = 1_000_000
MANY_EVENTS = 10_000_000
REPEATS = 5


def spread(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    """Median, and smallest to largest."""
    listed = list(values)
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(listed), statistics.median(listed), max(listed)))
    return f"{middle}{unit} ({low} to {high})"


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@dataclass(frozen=True)
class Recorded:
    """A recorded trace whose end state is its start: `batches` end with an eviction of all that the tree holds."""

    page_size: int
    path: Path
    batches: list[Any]
    events: int
    page_moves: int


def record(page_size: int, folder: Path) -> Recorded:
    path = folder / f"pages-of-{page_size}.jsonl"
    options = ["--workload", str(WORKLOAD), "--page-size", str(page_size), "--out", str(path)]
    subprocess.run([*CLI, "record", "--quiet", *options], check=True)
    reader = read_trace(path)
    replayer = Replayer(reader, [])
    events = [record for _, record in reader if isinstance(record, Event)]
    for line, event in enumerate(events, 2):
        assert replayer.feed(line, event) is None
    assert not replayer.ledgers
    in_tree = tuple(page for page, owner in sorted(replayer.book._owners.items()) if owner == TREE)
    events.append(Event(seq=len(events), action="evict", free=in_tree))
    moves = replayer.report.pages_moved + len(in_tree)
    return Recorded(page_size, path, list(batches_of(events)), len(events), moves)


def renamed(batch: Any, number: int) -> Any:
    """The same events of other sessions and turns."""
    for name in ("session", "turn"):
        column = batch.column(name)
        fresh = pa.array([f"{n}/{number}" for n in column.dictionary.to_pylist()], pa.utf8())
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, name, pa.DictionaryArray.from_arrays(column.indices, fresh))
    return batch


def repeated(recorded: Recorded, events: int) -> Iterator[Any]:
    for number in range(-(-events // recorded.events)):
        for batch in recorded.batches:
            yield renamed(batch, number)


@dataclass
class Run:
    """One run of the compiled checker: seconds in the loop and in all, and what was judged."""

    loop: float
    whole: float
    events: int
    page_moves: int


def judged(recorded: Recorded, events: int = EVENTS) -> Run:
    """The compiled checker over a repeated workload. Making the batches is not counted."""
    judge = compiled_judge(checker_source(ACTIONS, INVARIANTS))
    spent = [0.0]

    def clocked(*arguments: Any) -> tuple[int, int]:
        begin = time.process_time()
        found = judge(*arguments)
        spent[0] += time.process_time() - begin
        return found

    replayer = Replayer(read_trace(recorded.path), [])
    checker = CompiledChecker(replayer, clocked)
    whole = 0.0
    for batch in repeated(recorded, events):
        whole += seconds(lambda batch=batch: checker.judge_batch(batch))  # type: ignore[misc]
    checker.finish()
    report = replayer.report
    assert not report.findings and not checker.handed_over
    return Run(spent[0], whole, report.events, report.pages_moved)


@numba.njit
def touched(table: Any, runs: Any, offsets: Any) -> int:
    """Every number of the columns, read once."""
    total = 0
    for column in range(table.shape[0]):
        for event in range(table.shape[1]):
            total += table[column, event]
    for run in range(runs.shape[0]):
        total += runs[run, 0] + runs[run, 1]
    for place in range(offsets.shape[0]):
        for event in range(offsets.shape[1]):
            total += offsets[place, event]
    return total


def floor(recorded: Recorded) -> float:
    """Seconds to read the columns of as many events once."""
    arrays = [arrays_of(batch, Names()).arrays for batch in recorded.batches]
    touched(arrays[0].table, arrays[0].runs, arrays[0].offsets)
    times = -(-EVENTS // recorded.events)
    return seconds(lambda: [touched(a.table, a.runs, a.offsets) for _ in range(times) for a in arrays])


def peak_memory(arguments: list[str]) -> float:
    """Peak memory of this script in a process of its own, MiB."""
    process = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return float(process.stdout) / 1024


def loop_section(all_recorded: list[Recorded]) -> list[str]:
    lines = [
        "## The loop, from columns in memory",
        "",
        "| pages of | events | page moves | loop, million events/s | loop, million page moves/s | ns an event "
        "| with columns to arrays, million events/s | floor: columns read once, million events/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for recorded in all_recorded:
        say(f"loop, pages of {recorded.page_size}")
        judged(recorded, recorded.events)
        runs = [judged(recorded) for _ in range(REPEATS)]
        floors = [floor(recorded) for _ in range(REPEATS)]
        first = runs[0]
        lines.append(
            f"| {recorded.page_size} | {first.events:,} | {first.page_moves:,} "
            f"| {spread(r.events / r.loop / 1e6 for r in runs)} "
            f"| {spread(r.page_moves / r.loop / 1e6 for r in runs)} "
            f"| {spread((r.loop / r.events * 1e9 for r in runs), digits=0)} "
            f"| {spread(r.events / r.whole / 1e6 for r in runs)} "
            f"| {spread((first.events / f / 1e6 for f in floors), digits=0)} |"
        )
    return lines


def parse_section(recorded: Recorded, folder: Path) -> list[str]:
    say("parsing and whole replays")
    lines, columns = recorded.path, folder / "columns.kvtrace"
    reader = read_trace(lines)
    with write_trace(columns, reader.header) as writer:
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)
    n = recorded.events - 1  # the eviction is not in the file
    work: list[tuple[str, Callable[[], object]]] = [
        ("JSONL to events", lambda: sum(1 for _ in read_trace(lines))),
        ("JSONL to columns", lambda: sum(map(len, batches(read_trace(lines))))),
        ("columnar file to columns", lambda: sum(map(len, batches(read_trace(columns))))),
        ("columns to arrays", lambda: [arrays_of(batch, Names()) for batch in recorded.batches]),
        ("JSONL, judged interpreted, in all", lambda: replay(lines, checker="interpreted")),
        ("JSONL, judged compiled, in all", lambda: replay(lines, checker="compiled")),
        ("columnar file, judged compiled, in all", lambda: replay(columns, checker="compiled")),
    ]
    rows = [f"| {name} | {spread((n / seconds(run) for _ in range(REPEATS)), digits=0)} |" for name, run in work]
    return ["## What is around it", "", "| step | events/s |", "| --- | --- |", *rows]


def memory_section() -> list[str]:
    say("peak memory")
    started, ran = peak_memory(["--peak", "1"]), peak_memory(["--peak", str(MANY_EVENTS)])
    return [
        "## Memory",
        "",
        f"Peak of a process that judges {MANY_EVENTS:,} events as they come: {ran:.0f} MiB; of one that judges the "
        f"workload once: {started:.0f} MiB. What grows are the names of turns and sessions that are over.",
    ]


def start_section() -> list[str]:
    say("start")
    traced = [seconds(lambda: checker_source(ACTIONS, INVARIANTS)) for _ in range(REPEATS)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "KVPROOF_CACHE": folder}
        program = [sys.executable, __file__, "--start"]
        cold, warm = (
            float(subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(2)
        )
    return [
        "## Start",
        "",
        f"Tracing and printing the rules: {spread(traced, ' s')}. Compiling them, once for a specification: {cold:.1f} s; "
        f"loading what was kept: {warm:.1f} s (with the first events, processor time, one run each).",
    ]


def bounds_section() -> list[str]:
    return [
        "## What bounds it",
        "",
        "An event costs the loop its rule, the invariants on the new ledger and the comparison with what was seen: a few "
        "hundred integer operations on values that are in the cache, far from the memory bandwidth that the floor shows. A page "
        "costs its owner, its mark and the journal that would undo it. Behind the loop stands the step from columns to the "
        "loop's arrays, then unpacking the file. A trace in JSONL is bounded by its parsing: the loop does not matter there.",
    ]


def in_a_process_of_its_own(arguments: list[str]) -> None:
    """What the sections above start: `--peak EVENTS` prints kB, `--start` prints seconds."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(16, Path(folder))
        if arguments[0] == "--peak":
            judged(recorded, int(arguments[1]))
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        else:
            print(seconds(lambda: judged(recorded, recorded.events)))


def main() -> None:
    if sys.argv[1:]:
        return in_a_process_of_its_own(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        all_recorded = [record(page_size, Path(folder)) for page_size in (16, 1)]
        sections = [
            loop_section(all_recorded),
            bounds_section(),
            parse_section(all_recorded[0], Path(folder)),
            memory_section(),
            start_section(),
        ]
    versions = (f"numba {numba.__version__}", f"numpy {np.__version__}")
    head = [
        "# Replay: how fast a trace is judged",
        "",
        f"Written by `make bench-replay`. {machine(*versions)}. Medians of {REPEATS} runs (smallest to largest), "
        f"processor time of one core; load of the machine at the end: {os.getloadavg()[0]:.0f}.",
    ]
    PAGE.write_text("\n\n".join("\n".join(section) for section in [head, *sections]) + "\n")
    say(f"written: {PAGE.relative_to(HERE.parent)}")
    return None


if __name__ == "__main__":
    main()
