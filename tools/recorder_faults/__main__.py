"""The recorder under faults: what is done to it while a server runs, whether the server notices, and what becomes of the trace.

    PYTHONPATH=tools:benchmarks python -m recorder_faults [--kills 100] [--times 3] [--server sglang] [--fault NAME]

Each fault is a function in `kinds.py`. Two servers, one after the other: the reference implementation, and the installed
SGLang's scheduler on its own event loop, recorded as its plugin records it (`recorded_server.py`). Two forms of a trace: lines
and columns. Each fault strikes at a random step. Its slowdown is the median of the steps after it by the median of the steps
before it, both recorded, in one run; `nothing` is the same without a fault, so its spread is the noise. Every event is counted
where the server puts it down, and again where it is read from the disk.

Writes benchmarks/results/faults.md.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import RESULTS, machine

from kvproof.conformance.adapters.live.handover import PATIENCE_SECONDS
from recorder_faults.kinds import FAULTS, FORMS, KILLS, MOST_LOST, ONCE
from recorder_faults.runs import Host, Outcome

RESULT = RESULTS / "faults.md"

SLOWER = 1.25
"""The bound: with a fault the median step takes the server's thread so many times the CPU of one recorded without a fault."""
SLOWER_BY_THE_CLOCK = 2.0
"""Waiting takes no CPU; but by the clock the other work of the machine counts too."""
LONGEST_PAUSE = 0.25
"""and no single step may take so many seconds more than the longest before; or than is seen here without a fault."""


@dataclass
class Row:
    fault: str
    server: str
    form: str
    outcomes: list[Outcome]
    noise: float
    """seconds by which the longest steps of two stretches of this server differ without a fault"""

    @property
    def complaints(self) -> list[str]:
        found = [complaint for outcome in self.outcomes for complaint in outcome.complaints]
        slower = [outcome.slowdown for outcome in self.outcomes if outcome.slowdown is not None]
        pauses = [outcome.pause for outcome in self.outcomes if outcome.pause is not None]
        if slower and statistics.median(slower) > SLOWER:
            found.append(f"the median step takes {statistics.median(slower):.2f} times the CPU")
        clock = [outcome.by_the_clock for outcome in self.outcomes if outcome.by_the_clock is not None]
        if clock and statistics.median(clock) > SLOWER_BY_THE_CLOCK:
            found.append(f"by the clock the median step takes {statistics.median(clock):.2f} times as long")
        if pauses and statistics.median(pauses) > max(LONGEST_PAUSE, self.noise):
            found.append(f"the longest step takes {statistics.median(pauses):.3f} s more")
        return found

    def cells(self) -> list[str]:
        outcomes = self.outcomes
        slower = sorted(outcome.slowdown for outcome in outcomes if outcome.slowdown is not None)
        clock = [outcome.by_the_clock for outcome in outcomes if outcome.by_the_clock is not None]
        pauses = sorted(1e3 * outcome.pause for outcome in outcomes if outcome.pause is not None)
        files = [outcome.file if outcome.dropped is None else "ended" for outcome in outcomes]
        uncounted = [outcome.missing for outcome in outcomes if outcome.dropped is None]
        return [
            self.fault,
            self.server,
            self.form,
            str(len(outcomes)),
            f"{sum(outcome.served for outcome in outcomes)}" if self.fault not in KILLS else "killed",
            f"{statistics.median(slower):.2f} [{slower[0]:.2f}, {slower[-1]:.2f}]" if slower else "",
            f"{statistics.median(clock):.2f}" if clock else "",
            f"{statistics.median(pauses):.1f}, {pauses[-1]:.1f}" if pauses else "",
            ", ".join(f"{files.count(state)} {state}" for state in sorted(set(files))),
            f"{sum(outcome.seen for outcome in outcomes):,}",
            f"{sum(outcome.on_disk for outcome in outcomes):,}",
            f"{sum(outcome.dropped or 0 for outcome in outcomes):,}",
            f"{sum(uncounted):,} (at most {max(uncounted):,})" if any(uncounted) else "0",
            str(len(self.complaints)),
        ]


HEADS = (
    "fault", "server", "trace", "times", "served on", "slowdown in CPU, median [range]", "by the clock",
    "longest step, ms more: median, most",
    "files", "events seen", "on disk", "counted as dropped", "not counted in the file", "complaints",
)  # fmt: skip


def plan(kills: int, times: int, only: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """(fault, form, how often). Half of the kills fall on each form."""
    for fault in FAULTS:
        for form in FORMS:
            if (only and fault not in only) or (fault in ONCE and form != "lines"):
                continue
            often = {"server killed": kills // 2, "server and writer killed": kills // 10}.get(fault, times)
            yield fault, form, max(1, 1 if fault in ONCE else often)


def run_row(host: Host, fault: str, form: str, often: int, seed: int, folder: Path, noise: float) -> Row:
    outcomes = []
    for number in range(often):
        place = folder / f"{number}"
        try:
            chance = random.Random(f"{seed}/{fault}/{host.kind}/{form}/{number}")
            outcomes.append(FAULTS[fault](host, FORMS[form], place, chance))
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return Row(fault, host.kind, form, outcomes, noise)


def rows_of(page: Path) -> dict[tuple[str, ...], str]:
    """The lines of the table of an earlier run, by fault, server and form: those that are not done again stay."""
    if not page.exists():
        return {}
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    return {tuple(line.strip("| ").split(" | ")[:3]): line for line in lines[1:]}


def page(rows: list[Row], kept: dict[tuple[str, ...], str], seed: int, began: float) -> str:
    real = "a tmpfs of its own" if os.getuid() == 0 else "RLIMIT_FSIZE"
    done = kept | {(row.fault, row.server, row.form): "| " + " | ".join(row.cells()) + " |" for row in rows}
    ordered = [(fault, server, form) for server in ("reference", "sglang") for fault in FAULTS for form in FORMS]
    table = [done[key] for key in ordered if key in done]
    kills = sum(int(line.split(" | ")[3]) for key, line in done.items() if key[0] == "server killed")
    complaints = [f"{row.fault}, {row.server}, {row.form}: {text}" for row in rows for text in row.complaints]
    lines = [
        "# The recorder under faults",
        "",
        f"Written by `make test-faults`, {time.strftime('%Y-%m-%d')}. {machine()}. {kills} servers killed; seed {seed}; "
        f"{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.0f} at the end.",
        f"`tools/recorder_faults/kinds.py` says what each fault is; full and read-only disk: {real}.",
        "",
        f"Bound: the median step at most {SLOWER} times the CPU of one without a fault, and {SLOWER_BY_THE_CLOCK} times as long",
        "by the clock, which the machine's other work disturbs; the longest step at most "
        f"{1e3 * LONGEST_PAUSE:.0f} ms longer (median of the runs),",
        f"or as much as without a fault (`nothing`); the end at most {PATIENCE_SECONDS:.0f} s.",
        f"A killed server may take {MOST_LOST} events with it that nobody can count.",
        "",
        f"**{len(complaints)} complaints.**" + "".join(f"\n- {text}" for text in complaints),
        "",
        "| " + " | ".join(HEADS) + " |",
        "| --- | --- | --- |" + " --: |" * 5 + " --- |" + " --: |" * 5,
        *table,
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of each server")
    parser.add_argument("--times", type=int, default=3, help="each other fault of each server and form")
    parser.add_argument("--server", choices=("reference", "sglang"), action="append")
    parser.add_argument("--fault", choices=tuple(FAULTS), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    # The board is mapped: on a busy disk, writing its pages back would hold the server up, and be taken for the recorder's doing.
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    kept = rows_of(arguments.out) if arguments.fault else {}
    servers, rows, began = arguments.server or ["reference", "sglang"], list[Row](), time.monotonic()

    def harm(server: str, folder: Path) -> None:
        host, noise = Host(server), 0.0
        for fault, form, often in plan(arguments.kills, arguments.times, arguments.fault or ()):
            row = run_row(host, fault, form, often, arguments.seed, folder / server / fault.replace(" ", "-"), noise)
            if fault == "nothing":
                noise = max(noise, *(abs(outcome.pause or 0.0) for outcome in row.outcomes))
            rows.append(row)
            # What was done stays, also where it is stopped.
            arguments.out.write_text(page(rows, kept, arguments.seed, began))
            print("\n  ".join([" | ".join(row.cells()), *row.complaints]), flush=True)
        host.close()

    with tempfile.TemporaryDirectory(prefix="kvproof-faults-", dir=in_memory) as folder:
        Path(folder).chmod(0o755)
        for server in servers:
            harm(server, Path(folder))
    print(f"written: {arguments.out}")
    sys.exit(any(row.complaints for row in rows))


if __name__ == "__main__":
    main()
