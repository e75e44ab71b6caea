"""How fast a recorded trace is judged, by the compiled checker and by the interpreted one: `make bench-replay`.

A workload is recorded on the reference implementation, once with pages of 16 tokens and once with pages of one; then it is
repeated under fresh names until it has a million events (between two of them the tree evicts all that it holds, so the pool
is as at the start). The loop is measured on columns in memory. What brings a file to the loop is measured apart, step by
step, beside its floor: the bytes read, unpacked, or parsed as JSON by others, and nothing else.

Seconds are of processor time of one core, medians of repeated runs with their spread; but for two files on two cores, where
they are of the clock. Writes benchmarks/results/replay.md.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.json as json
from measuring import CLI, machine, say, spread

from kvproof.conformance.compiled.build import the_judge
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.choose import COMPILED, Chosen
from kvproof.conformance.compiled.columns import Names, arrays_of, batches
from kvproof.conformance.compiled.rules import rules_source
from kvproof.conformance.replay.page_book import TREE
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.columnar import stream_of_batch
from kvproof.conformance.traces.columnar_blocks import Kind, blocks, packed
from kvproof.conformance.traces.columnar_events import EVENTS_OF_A_BLOCK, batches_of
from kvproof.conformance.traces.columnar_schema import NAMES
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.conformance.traces.records import line_of
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.trace import End, Event

HERE = Path(__file__).parent
PAGE = HERE / "results" / "replay.md"
WORKLOAD = HERE.parent / "examples" / "mooncake_conversation_excerpt.jsonl"
EVENTS = 1_000_000
MANY_EVENTS = 10_000_000
FILES_OF_TWO = (2_000_000, 10_000_000)
REPEATS = 5
BYTES_AT_ONCE = 2**20


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
    steps: int


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
    steps = 1 + max(event.step for event in events if event.step is not None)
    return Recorded(page_size, path, list(batches_of(events)), len(events), moves, steps)


def with_names(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch's events, with other columns of sessions and turns."""
    for name in NAMES:
        batch = batch.set_column(batch.schema.get_field_index(name), name, change(batch.column(name)))
    return batch


def renamed(batch: Any, number: int) -> Any:
    """The batch's events, of other sessions and turns."""

    def fresh(names: Any) -> Any:
        return pa.DictionaryArray.from_arrays(
            names.indices, pa.array([f"{n}/{number}" for n in names.dictionary.to_pylist()], pa.utf8())
        )

    return with_names(batch, fresh)


def later(batch: Any, events: int, steps: int) -> Any:
    """The batch behind so many events and steps."""
    for name, more in (("seq", events), ("step", steps)):
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, batch.schema.field(place), compute.add(batch.column(name), more))
    return batch


def repeated(recorded: Recorded, events: int) -> Iterator[Any]:
    for number in range(-(-events // recorded.events)):
        for batch in recorded.batches:
            yield later(renamed(batch, number), number * recorded.events, number * recorded.steps)


@dataclass
class Run:
    """One run of the compiled checker: seconds in the loop and in all, and what was judged."""

    loop: float
    whole: float
    events: int
    page_moves: int


def judged(recorded: Recorded, events: int = EVENTS) -> Run:
    """The compiled checker over a repeated workload. Making the batches is not counted."""
    judge = the_judge()
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
def touched(table: Any, runs: Any, begins: Any, ends: Any) -> int:
    """Every number of the columns, read once."""
    total = 0
    for column in range(table.shape[0]):
        for event in range(table.shape[1]):
            total += table[column, event]
    for run in range(runs.shape[0]):
        total += runs[run, 0] + runs[run, 1]
    for place in range(begins.shape[0]):
        for event in range(begins.shape[1]):
            total += begins[place, event] + ends[place, event]
    return total


def floor(recorded: Recorded) -> float:
    """Seconds to read the columns of as many events once."""
    arrays = [arrays_of(batch, Names()).arrays for batch in recorded.batches]
    touched(arrays[0].table, arrays[0].runs, arrays[0].begins, arrays[0].ends)
    times = -(-EVENTS // recorded.events)
    return seconds(lambda: [touched(a.table, a.runs, a.begins, a.ends) for _ in range(times) for a in arrays])


def peak_memory(arguments: list[str]) -> float:
    """Peak memory of this script in a process of its own, MiB."""
    process = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return float(process.stdout) / 1024


def peak_so_far() -> int:
    """Peak memory of this process, kB. Not that of getrusage, in which the process that started it counts, too."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


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


def full_blocks(batches: Iterator[Any]) -> Iterator[Any]:
    """The events of batches in batches of EVENTS_OF_A_BLOCK; the last one may be shorter."""
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(with_names(batch, lambda names: names.cast(pa.utf8())))
        if sum(map(len, waiting)) >= EVENTS_OF_A_BLOCK:
            rest = pa.concat_batches(waiting)
            while len(rest) >= EVENTS_OF_A_BLOCK:
                yield with_names(rest.slice(0, EVENTS_OF_A_BLOCK), lambda names: names.dictionary_encode())
                rest = rest.slice(EVENTS_OF_A_BLOCK)
            waiting = [rest]
    if waiting and len(rest := pa.concat_batches(waiting)):
        yield with_names(rest, lambda names: names.dictionary_encode())


def write_columns(recorded: Recorded, path: Path, events: int) -> int:
    """The repeated workload as a file in columns, in full blocks as a recorder writes them; how many events it has."""
    seq = 0
    with path.open("wb") as file:
        file.write(packed(0, Kind.HEADER, 0, 0, line_of(read_trace(recorded.path).header)))
        for number, batch in enumerate(full_blocks(repeated(recorded, events)), 1):
            seqs = pa.array(np.arange(seq, seq + len(batch)), pa.int64())
            file.write(packed(number, Kind.EVENTS, seq, len(batch), stream_of_batch(batch.set_column(0, "seq", seqs))))
            seq += len(batch)
        file.write(packed(number + 1, Kind.END, seq, 0, line_of(End(events=seq))))
    return seq


def write_lines(columns: Path, path: Path) -> None:
    reader = read_trace(columns)
    with write_trace(path, reader.header) as writer:
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)


Steps = list[tuple[str, Callable[[], object]]]


def unpacked(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.events for block in blocks(file))


def parsed(path: Path) -> int:
    """The lines parsed by Arrow into its own columns, by one thread."""
    options = json.ReadOptions(use_threads=False, block_size=BYTES_AT_ONCE)
    return len(json.read_json(path, options))


def in_arrays(path: Path) -> int:
    names = Names()
    return sum(len(arrays_of(batch, names)) for batch in batches(read_trace(path)))


def steps_of_columns(columns: Path) -> Steps:
    return [
        ("floor: blocks read and unpacked", lambda: unpacked(columns)),
        ("to columns, checked", lambda: sum(map(len, batches(read_trace(columns))))),
        ("to the loop's arrays", lambda: in_arrays(columns)),
        ("in all", lambda: replay(columns, checker=Chosen(COMPILED))),
    ]


def steps_of_lines(lines: Path) -> Steps:
    return [
        ("floor: bytes read", lambda: lines.read_bytes()),
        ("floor: parsed by pyarrow.json", lambda: parsed(lines)),
        ("to columns", lambda: sum(map(len, batches(read_trace(lines))))),
        ("to the loop's arrays", lambda: in_arrays(lines)),
        ("in all", lambda: replay(lines, checker=Chosen(COMPILED))),
    ]


def rates_of(steps: Steps, events: int) -> list[tuple[str, list[float]]]:
    """Seconds of each step, which holds those before it; runs of one round after each other, so that they compare."""
    taken: dict[str, list[float]] = {name: [] for name, _ in steps}
    for _, work in steps:
        work()
    for _ in range(REPEATS):
        for name, work in steps:
            taken[name].append(seconds(work) / events)
    return list(taken.items())


def table_of(steps: list[tuple[str, list[float]]], pages: float) -> list[str]:
    return [
        f"| {name} | {spread(1 / s / 1e6 for s in each)} | {spread((s * 1e9 for s in each), digits=0)} "
        f"| {spread(pages / s / 1e6 for s in each)} |"
        for name, each in steps
    ]


def share_of_checking(steps: dict[str, list[float]]) -> str:
    decoding, whole = (statistics.median(steps[name]) for name in ("to the loop's arrays", "in all"))
    return f"decoding {decoding * 1e9:.0f} ns, checking {(whole - decoding) * 1e9:.0f} ns: {whole / decoding - 1:.2f} of it"


def files_section(all_recorded: list[Recorded], folder: Path) -> list[str]:
    lines = ["## From a file, on one core", "", "Each step holds those before it, but for floors."]
    for recorded in all_recorded:
        say(f"files, pages of {recorded.page_size}")
        columns, text = (folder / f"{recorded.page_size}.{suffix}" for suffix in ("kvtrace", "jsonl"))
        write_columns(recorded, columns, EVENTS)
        write_lines(columns, text)
        report = replay(columns, checker=Chosen(COMPILED))
        for kind, steps in (("columns", steps_of_columns(columns)), ("lines", steps_of_lines(text))):
            say(f"{kind} of pages of {recorded.page_size}")
            found = rates_of(steps, report.events)
            size = (columns if kind == "columns" else text).stat().st_size / report.events
            lines += [
                "",
                f"In {kind}, pages of {recorded.page_size}: {report.events:,} events, {size:.1f} bytes each, "
                f"{report.pages_moved:,} page moves; {share_of_checking(dict(found))}.",
                "",
                "| step | million events/s | ns an event | million page moves/s |",
                "| --- | --- | --- | --- |",
                *table_of(found, report.pages_moved / report.events),
            ]
    return lines


def plain_ledger(events: list[Event]) -> int:
    """What a script would do: who has which page, by a dict. It knows no length, no tree and no rule."""
    owners: dict[int, str | None] = {}
    for event in events:
        for page in event.alloc:
            assert page not in owners
            owners[page] = event.session or event.turn
        for page in event.free:
            del owners[page]
    return len(owners)


def other_ways_section(recorded: Recorded) -> list[str]:
    say("the interpreted checker")
    n, lines = recorded.events - 1, recorded.path  # the eviction is not in the file
    events = [record for _, record in read_trace(lines) if isinstance(record, Event)]
    work: Steps = [
        ("a plain ledger: a dict of pages, events in memory, no rule", lambda: plain_ledger(events)),
        ("JSONL to events, one by one", lambda: sum(1 for _ in read_trace(lines))),
        ("JSONL, judged interpreted, in all", lambda: replay(lines)),
    ]
    rows = [f"| {name} | {spread((n / seconds(run) for _ in range(REPEATS)), digits=0)} |" for name, run in work]
    return ["## Beside it", "", "| step | events/s |", "| --- | --- |", *rows]


def clocked(arguments: list[str]) -> tuple[float, float]:
    """Seconds of the clock, and of processors, of a replay with all its processes."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*CLI, "replay", "--quiet", "--checker", COMPILED, *arguments], check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begin, spent


def cores_section(recorded: Recorded, folder: Path) -> list[str]:
    lines = [
        "## Two files on two cores",
        "",
        "Two traces in columns, `kvproof replay A B --jobs N`, start of all processes included: a worker starts in a second, "
        "which two short files do not repay. Whoever else works on these cores slows two jobs more than one (load "
        f"{os.getloadavg()[0]:.1f} before it), so the time of the processors stands beside that of the clock.",
        "",
        "| events of each file | one job | two jobs | times as fast | processors: one job | two jobs | "
        "times as fast, if nobody else worked |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for events in FILES_OF_TWO:
        say(f"two files on two cores, {events:,} events each")
        lines.append(cores_row(recorded, folder, events))
    return lines


def cores_row(recorded: Recorded, folder: Path, events: int) -> str:
    first, second = folder / "first.kvtrace", folder / "second.kvtrace"
    write_columns(recorded, first, events)
    shutil.copyfile(first, second)
    files = [str(first), str(second)]
    runs = [[clocked([*files, "--jobs", jobs]) for jobs in ("1", "2")] for _ in range(3)]
    cells = [f"{events:,}"]
    for kind, times in enumerate((1, 2)):  # by the clock, and of processors that two jobs share
        cells += (spread((run[jobs][kind] for run in runs), " s", 1) for jobs in (0, 1))
        cells.append(spread(times * one[kind] / two[kind] for one, two in runs))
    return f"| {' | '.join(cells)} |"


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
    traced = [seconds(lambda: rules_source(ACTIONS, INVARIANTS)) for _ in range(REPEATS)]
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
        f"Tracing and printing the rules: {spread(traced, ' s')}. Compiling them and the loop, once: {cold:.1f} s; "
        f"loading what was kept: {warm:.1f} s (with the first events, processor time, one run each).",
    ]


def bounds_section() -> list[str]:
    return [
        "## What bounds it",
        "",
        "An event costs the loop its rule, the invariants on the new ledger and the comparison with what was seen: a few "
        "hundred integer operations on values that are in the cache, far from the memory bandwidth that the floor shows. A page "
        "costs its owner; one entry of a journal undoes many of them. A trace in columns is bounded by unpacking its blocks and "
        "bringing them into arrays, one in lines by decoding each line.",
    ]


def in_a_process_of_its_own(arguments: list[str]) -> None:
    """What the sections above start: `--peak EVENTS` prints kB, `--start` prints seconds."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(16, Path(folder))
        if arguments[0] == "--peak":
            judged(recorded, int(arguments[1]))
            print(peak_so_far())
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
            files_section(all_recorded, Path(folder)),
            other_ways_section(all_recorded[0]),
            cores_section(all_recorded[0], Path(folder)),
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
