"""Size of a trace in each form, and how fast each is read: `python benchmarks/formats.py TRACE.jsonl`.

Every time is processor time of one core, the median of repeated runs with the smallest and the largest. The trace is
recorded before; its length and origin stand in the result. Writes benchmarks/results/formats.md.

"Arrow alone" reads blocks, compares checksums, unpacks and lets pyarrow read the stream. "Columns" adds the checks of
docs/columnar.md: it is what a checker over columns needs, without an object for each event.
"Events" is what the interpreted checker needs: an `Event` for each.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from measuring import machine

from kvproof.conformance.traces.columnar import ColumnarReader, ColumnarWriter
from kvproof.conformance.traces.columnar_blocks import HEAD_SIZE, ZSTD_LEVEL, Kind, blocks
from kvproof.conformance.traces.columnar_schema import PAGE_LISTS, PAGE_LISTS_OR_NULL, runs
from kvproof.conformance.traces.json_lines import TraceReader, TraceWriter
from kvproof.spec.trace import Event

RESULT = Path(__file__).parent / "results" / "formats.md"


@dataclass(frozen=True)
class Rate:
    """Events a second of one way to read or write, and how often it was measured."""

    what: str
    events: int
    seconds: tuple[float, ...]

    @property
    def row(self) -> str:
        rates = sorted(self.events / seconds for seconds in self.seconds)
        spread = f"{_short(rates[0])} to {_short(rates[-1])}"
        return f"| {self.what} | {_short(statistics.median(rates))} events/s ({spread}) | {len(rates)} |"


def measure(what: str, events: int, repeats: int, work: Callable[[], object]) -> Rate:
    seconds = []
    for _ in range(repeats):
        gc.collect()
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return Rate(what, events, tuple(seconds))


def exhaust(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def arrow_alone(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for block in blocks(file):
            if block.kind is Kind.EVENTS:
                with pa.ipc.open_stream(block.payload) as stream:
                    yield stream.read_all()


def events_in(path: Path) -> list[Event]:
    return [record for _, record in TraceReader(path) if isinstance(record, Event)]


def write(kind: type[TraceWriter], path: Path, source: Path, events: list[Event]) -> None:
    with kind(path, TraceReader(source).header) as writer:
        for event in events:
            writer.write(event)


def sizes(source: Path, columnar: Path, events: int) -> list[str]:
    codec = pa.Codec("zstd", compression_level=ZSTD_LEVEL)
    lines = source.stat().st_size
    zipped = len(codec.compress(source.read_bytes(), asbytes=True))
    columns = columnar.stat().st_size
    with columnar.open("rb") as file:
        in_memory = sum(block.payload.size for block in blocks(file) if block.kind is Kind.EVENTS)
    rows = [
        ("JSONL", lines),
        (f"JSONL, zstd level {ZSTD_LEVEL} over the whole file", zipped),
        ("columnar (`.kvtrace`)", columns),
        ("columnar, unpacked", in_memory),
    ]
    return [f"| {name} | {size / events:.1f} | {lines / size:.1f} |" for name, size in rows]


def pages(columnar: Path) -> tuple[int, int]:
    """How many pages the lists of the trace name, and in how many runs."""
    named = counted = 0
    for batch in ColumnarReader(columnar).batches():
        for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
            counts = runs(batch, column)[2]
            named, counted = named + int(counts.sum()), counted + len(counts)
    return named, counted


def rates(source: Path, columnar: Path, folder: Path, events: list[Event], repeats: int) -> list[Rate]:
    number, few = len(events), max(3, repeats // 3)
    return [
        measure("columnar: Arrow alone", number, repeats, lambda: exhaust(arrow_alone(columnar))),
        measure("columnar: columns", number, repeats, lambda: exhaust(ColumnarReader(columnar).batches())),
        measure("columnar: `Event` objects", number, few, lambda: exhaust(iter(ColumnarReader(columnar)))),
        measure("JSONL: `Event` objects", number, few, lambda: exhaust(iter(TraceReader(source)))),
        measure("write columnar", number, few, lambda: write(ColumnarWriter, folder / "w.kvtrace", source, events)),
        measure("write JSONL", number, few, lambda: write(TraceWriter, folder / "w.jsonl", source, events)),
    ]


def report(source: Path, repeats: int, origin: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        columnar = Path(name) / "t.kvtrace"
        events = events_in(source)
        write(ColumnarWriter, columnar, source, events)
        named, counted = pages(columnar)
        with columnar.open("rb") as file:
            blocks_of_events = sum(block.kind is Kind.EVENTS for block in blocks(file))
        lines = [
            "# Forms of a trace",
            "",
            f"{len(events)} events, {named} page ids in {counted} runs; {origin}.",
            f"{blocks_of_events} blocks of events, each with a head of {HEAD_SIZE} bytes.",
            "",
            f"{machine(f'pyarrow {pa.__version__}')}. One core, processor time,",
            "median of repeated runs (smallest to largest). `python benchmarks/formats.py TRACE`",
            "",
            "| form | bytes per event | smaller than JSONL |",
            "| --- | --- | --- |",
            *sizes(source, columnar, len(events)),
            "",
            "| | rate | runs |",
            "| --- | --- | --- |",
            *(rate.row for rate in rates(source, columnar, Path(name), events, repeats)),
        ]
    return "\n".join(lines) + "\n"


def _short(number: float) -> str:
    return f"{number / 1e6:.2f} million" if number >= 1e6 else f"{round(number, -2):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="a recorded .jsonl, long enough to measure: 200,000 events or more")
    parser.add_argument("--origin", default="recorded from the reference", help="how it was recorded, for the result")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    text = report(arguments.trace, arguments.repeats, arguments.origin)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
