"""Whether `kvproof watch` keeps up with a writer of 100,000 records a second: `make bench-watch`.

A workload is recorded on the reference implementation and repeated under fresh names, as for the replay (`replay.py`). A process
of its own writes it in lines at a steady rate, or in columns, for half a minute; `kvproof watch` follows, as a user starts it,
with a metrics port. How far it is behind the writer is scraped four times a second. The figure that counts is the rate that
it sustains over the rate that was written: one is "keeps up", and the lag says how closely.

Writes benchmarks/results/watch.md.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from measuring import CLI, machine, say
from replay import Recorded, record, write_columns

from kvproof.conformance.traces.columnar_blocks import blocks
from kvproof.conformance.traces.columnar_events import events_of
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import line_of
from kvproof.spec.trace import End

HERE = Path(__file__).parent
PAGE = HERE / "results" / "watch.md"
RATE = 100_000
SECONDS = 25.0
TICK = 0.01
WARM_UP = 10.0
"""Seconds from the start that are reported separately: the compiled checker is loaded then, and what waits is caught up."""


def prepare(recorded: Recorded, path: Path, events: int) -> int:
    """The whole trace as the writer will write it; how many events it has."""
    header = line_of(read_trace(recorded.path).header)
    if path.suffix == ".kvtrace":
        return write_columns(recorded, path, events)
    ready, seq = templates(recorded), 0
    with path.open("wb") as file:
        file.write(header + b"\n")
        for number in range(-(-events // recorded.events)):
            for line in ready:
                file.write((line % (seq, number, number)[: line.count("%d")]).encode())
                seq += 1
        file.write(line_of(End(events=seq)) + b"\n")
    return seq


def templates(recorded: Recorded) -> list[str]:
    """Each line, with places for its seq and for the number of the repetition behind the names of session and turn."""
    found = []
    for event in (event for batch in recorded.batches for event in events_of(batch)):
        text = line_of(event).decode()
        assert "%" not in text
        text = text.replace(f'"seq":{event.seq}', '"seq":%d', 1)
        for name in ("session", "turn"):
            text = text.replace(f'"{name}":"{getattr(event, name)}"', f'"{name}":"{getattr(event, name)}/%d"', 1)
        found.append(text + "\n")
    return found


def write(source: Path, target: Path, rate: int) -> None:
    """What the writing process does: a copy of the trace at so many events a second, by the clock."""
    data = source.read_bytes()
    if source.suffix == ".kvtrace":
        with source.open("rb") as file:
            starts = [(block.offset, block.events) for block in blocks(file)]
        ends, counts, total = [], [], 0
        for (_, events), (end, _) in zip(starts, [*starts[1:], (len(data), 0)], strict=True):
            total += events
            ends.append(end)
            counts.append(total)
    else:
        step = max(1, int(rate * TICK))
        ends, counts, at, total = [], [], data.index(b"\n") + 1, 0
        ends.append(at)
        counts.append(0)
        places = [m.end() for m in re.finditer(b"\n", data)]
        for place in range(step, len(places) + step, step):
            ends.append(places[min(place, len(places) - 1)])
            counts.append(min(place, len(places) - 2))
    begin, at = time.monotonic(), 0
    with target.open("wb", buffering=0) as file:
        for end, count in zip(ends, counts, strict=True):
            wait = begin + count / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            file.write(data[at:end])
            at = end
    print(f"{time.monotonic() - begin:.3f}")


@dataclass
class Followed:
    """One run: the events of the trace, seconds until it was written, until it was judged, and the lags on the way."""

    events: int
    written: float
    judged: float
    at_start: float = 0.0
    """The largest lag of the warm-up, in seconds."""
    lag_seconds: list[float] = field(default_factory=list)
    lag_bytes: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.written / self.judged


def follow(source: Path, folder: Path, rate: int, checker: str) -> Followed:
    target = folder / f"live{source.suffix}"
    target.unlink(missing_ok=True)
    command = [*CLI, "watch", str(target), "--no-view", "--metrics-port", "0", "--checker", checker]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    url = watcher.stdout.readline().split()[-1]
    begin = time.monotonic()
    writer = subprocess.Popen(
        [sys.executable, __file__, "--write", str(source), str(target), str(rate)], stdout=subprocess.PIPE, text=True
    )
    run = Followed(0, 0, 0)
    first = 0.0
    while watcher.poll() is None:
        time.sleep(0.25)
        try:
            text = urllib.request.urlopen(url, timeout=5).read().decode()
        except OSError:
            continue
        values = dict(re.findall(r"^(kvproof_\w+) ([-+.\de]+)$", text, re.M))
        if float(values.get("kvproof_following", 0)) and not first:
            first = time.monotonic()
        if first and time.monotonic() - first <= WARM_UP:
            run.at_start = max(run.at_start, float(values["kvproof_lag_seconds"]))
        elif first and writer.poll() is None:
            run.lag_seconds.append(float(values["kvproof_lag_seconds"]))
            run.lag_bytes.append(float(values["kvproof_lag_bytes"]))
    run.judged = time.monotonic() - first
    rest = watcher.stdout.read()
    assert watcher.returncode == 0, rest
    run.written = float(writer.communicate()[0])
    found = re.search(r"(\d+) events, \d+ page moves", rest)
    assert found is not None
    run.events = int(found[1])
    assert begin < first
    return run


def row(name: str, run: Followed) -> str:
    achieved = run.events / run.written
    return (
        f"| {name} | {achieved:,.0f} | {run.events:,} | {run.ratio:.3f} "
        f"| {run.at_start:.1f} | {statistics.median(run.lag_seconds):.2f} / {max(run.lag_seconds):.2f} "
        f"| {max(run.lag_bytes) / 2**20:.2f} |"
    )


def alone(source: Path) -> float:
    """Events a second of processor time, over a trace that is written already; the start of the process included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*CLI, "watch", str(source), "--no-view", "--once", "--checker", "compiled"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(r"(\d+) events, \d+ page moves", text)
    assert found is not None
    return int(found[1]) / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        return write(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    rows, limits = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorded = record(16, folder)
        for suffix in (".jsonl", ".kvtrace"):
            source = folder / f"whole{suffix}"
            say(f"preparing {source.name}")
            prepare(recorded, source, int(RATE * SECONDS))
            speeds = [alone(source) for _ in range(3)]
            limits.append(
                f"{suffix}: {statistics.median(speeds):,.0f} ({statistics.median(speeds) / RATE:.1f} times {RATE:,})"
            )
            say(limits[-1])
            rows.append(row(suffix, follow(source, folder, RATE, "auto")))
            say(rows[-1])
    head = [
        "# Watch: does it keep up",
        "",
        f"Written by `make bench-watch`. {machine()}; writer, watcher and whoever else works share these cores; load at "
        f"the end: {os.getloadavg()[0]:.0f}.",
        "",
        f"A trace of {RATE * SECONDS:,.0f} events is written at a steady rate and followed with `--checker auto` and a warm "
        f"cache; the metrics are scraped four times a second. The first {WARM_UP:.0f} s stand apart: the compiled checker is "
        "loaded then.",
        "",
        "| trace | events/s written | events | rate followed / rate written | lag at the start, s: most "
        "| lag then, s: median / most | lag then, MiB: most |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        "What a core gives: events a second of processor time over a trace that is there already (`--once`, compiled, "
        f"start included, median of three). {'; '.join(limits)}.",
    ]
    PAGE.write_text("\n".join(head) + "\n")
    say(f"written: {PAGE.relative_to(HERE.parent)}")
    return None


if __name__ == "__main__":
    main()
