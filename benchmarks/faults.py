"""The recorder under faults: what is done to it while a server runs, whether the server notices, and what becomes of the trace.

    python benchmarks/faults.py [--kills 100] [--times 3] [--server sglang] [--fault NAME]

Two servers: the reference implementation, and the installed SGLang's scheduler on its own event loop, recorded as its plugin
records it (`fault_server.py`). Two forms of a trace: lines and columns. Each fault strikes at a random step. Its slowdown is the
median of the steps after it by the median of the steps before it, both recorded, in one run; `nothing` is the same without a
fault, so its spread is the noise. Every event is counted where the server puts it down, and again where it is read from the disk.

Writes benchmarks/results/faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_server import ENDING_SECONDS as ENDING
from fault_server import HARMED_AT, SEEN, STEPS, Board
from fault_server import WAITED_BYTES as WAITED
from measuring import machine

from kvproof.conformance.adapters.live.handover import BUFFER_BYTES, PATIENCE_SECONDS, RECORDS_OF_A_BATCH
from kvproof.conformance.adapters.live.trace import is_being_written
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay import VIOLATES, replay
from kvproof.conformance.trace_io import read_trace
from kvproof.spec.trace import Event

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "faults.md"
SGLANG = ROOT / ".venv-sglang"
RELEASE = "0.5.11"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
FORMS = {"lines": "t.jsonl", "columns": "t.kvtrace"}

SLOWER = 1.25
"""The bound: with a fault the median step takes the server's thread so many times the CPU of one recorded without a fault."""
SLOWER_BY_THE_CLOCK = 2.0
"""Waiting takes no CPU; but by the clock the other work of the machine counts too."""
LONGEST_PAUSE = 0.25
"""and no single step may take so many seconds more than the longest before; or than is seen here without a fault."""
# A killed server takes what it had not sent: so many records, each a step of six requests with the results of the one before.
MOST_LOST = RECORDS_OF_A_BATCH * 12 + 24

STRIKES_AT, RUNS_FOR = (1300, 1600), 2600
STEPS_BEFORE = 600
"""Those before a fault that count: when the first ones ran, the process that writes was still starting."""
SMALL_BUFFER = {"reference": 16 << 20, "sglang": 1 << 20}
"""Bytes: above what waits on a busy machine, and soon full."""
PACE = 0.0005
"""Seconds that a forward takes, beside the time that is taken: without any, events come faster than from any server."""
SLOW_PACE = 0.002
"""Of a server that is killed."""
NOBODY = 65534


class Host:
    """A server that was started once; each run is a fork of it."""

    def __init__(self, kind: str, environment: dict[str, str] | None = None) -> None:
        self.kind = kind
        command, own = [sys.executable], dict(os.environ)
        if kind == "sglang":
            command = [str(SGLANG / "bin" / "python"), "-W", "ignore"]
            own["PYTHONPATH"] = str(SGLANG / "site" / RELEASE)
        command.append(str(Path(__file__).with_name("fault_server.py")))
        own.update(environment or {})
        self._process = subprocess.Popen(
            [*command, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=own,
            text=True,
        )
        self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def start(self, folder: Path, trace: Path, **task: Any) -> Run:
        folder.mkdir(parents=True, exist_ok=True)
        task = {"folder": str(folder), "trace": str(trace), "at": 0, "steps": RUNS_FOR, "pace": PACE, **task}
        return Run(self, self._ask(task)["pid"], folder, trace, task)

    def wait(self, pid: int) -> int:
        return int(self._ask({"wait": pid})["code"])

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
        raise SystemExit(f"the {self.kind} server did not start: {self._process.args}")


@dataclass
class Run:
    host: Host
    pid: int
    folder: Path
    trace: Path
    task: dict[str, Any]
    code: int | None = None

    def __post_init__(self) -> None:
        self.board = Board(self.folder / "board")

    @property
    def steps(self) -> int:
        return int(self.board[STEPS])

    def until(self, step: int) -> None:
        deadline = time.monotonic() + 120
        while self.steps < step:
            if time.monotonic() > deadline or not Path(f"/proc/{self.pid}").exists():
                raise AssertionError(f"the server stopped at step {self.steps}: {self.log()}")
            time.sleep(0.002)

    def struck(self) -> None:
        """The fault is there from this step on."""
        self.board[HARMED_AT] = max(1, self.steps)

    def ended(self) -> Run:
        self.code = self.host.wait(self.pid)
        return self

    def writer(self) -> int:
        """The process that writes the trace."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != self.pid:
                    with suppress(OSError):
                        if parent_of(entry) != self.pid and self.trace in [
                            link.readlink() for link in (entry / "fd").iterdir()
                        ]:
                            return int(entry.name)
            time.sleep(0.01)
        raise AssertionError(f"no process writes {self.trace}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]


def parent_of(process: Path) -> int:
    """Of /proc/PID."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


@dataclass
class Outcome:
    """What became of one run."""

    served: bool
    """all its steps, or up to the moment when it was killed"""
    slowdown: float | None
    """of the median step, in CPU of its thread"""
    by_the_clock: float | None
    pause: float | None
    """seconds by which its longest step after the fault is longer than the longest before it"""
    seen: int
    on_disk: int
    dropped: int | None
    """as the end record says; None: the trace has none"""
    ending: float
    """seconds that the end of the recording took"""
    waited: int
    """bytes that waited in the buffer at most"""
    file: str
    """absent, empty, whole (up to its last record), or torn (the last block breaks off and is named)"""
    said: str
    complaints: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return self.seen - self.on_disk


def outcome_of(run: Run, *, killed: bool = False, judged: bool | None = None, trace: Path | None = None) -> Outcome:
    """`judged`: whether the trace is replayed as well; if nothing is said, that of the first run of a row of lines is."""
    trace = trace or run.trace
    judged = run.folder.name == "0" and trace.suffix == ".jsonl" if judged is None else judged
    deadline = time.monotonic() + 30
    while trace.exists() and is_being_written(trace) and time.monotonic() < deadline:
        time.sleep(0.01)
    board, at = run.board, int(run.board[HARMED_AT])
    before, after = board.steps(max(0, at - STEPS_BEFORE), at), board.steps(at)
    measured = not killed and len(before) > 100 and len(after) > 100
    on_disk, dropped, file, wrong = read(trace, judged)
    outcome = Outcome(
        served=killed or (run.code == 0 and run.steps >= run.task["steps"]),
        slowdown=ratio(board.cpu_of_steps(max(0, at - STEPS_BEFORE), at), board.cpu_of_steps(at)) if measured else None,
        by_the_clock=ratio(before, after) if measured else None,
        pause=max(after) - max(before) if measured else None,
        seen=int(board[SEEN]),
        on_disk=on_disk,
        dropped=dropped,
        ending=max(0.0, board[ENDING]) if run.code == 0 else 0.0,
        waited=int(board[WAITED]),
        file=file,
        said=run.log(),
    )
    if not outcome.served:
        outcome.complaints.append(f"the server ended with {run.code} after {run.steps} steps: {run.log()}")
    if wrong:
        outcome.complaints.append(wrong)
    if outcome.ending > PATIENCE_SECONDS + 1:
        outcome.complaints.append(f"the end took {outcome.ending:.1f} s")
    return outcome


def ratio(before: list[float], after: list[float]) -> float:
    return statistics.median(after) / statistics.median(before)


def read(trace: Path, judged: bool) -> tuple[int, int | None, str, str | None]:
    """Events on disk, what the end record counts as dropped, the state of the file, and what is wrong with it."""
    if not trace.exists():
        return 0, None, "absent", None
    if not trace.stat().st_size:
        return 0, None, "empty", None
    try:
        reader = read_trace(trace)
        events = sum(isinstance(record, Event) for _, record in reader)
        verdict = replay(trace).verdict if judged else None
    except UserError as error:
        if "breaks off inside the header" in str(error) or "nothing can be checked" in str(error):
            return 0, None, "torn", None
        return 0, None, "unreadable", str(error)
    wrong = "its replay finds a violation" if verdict == VIOLATES else None
    return events, reader.end.dropped if reader.end else None, "torn" if reader.torn else "whole", wrong


# -- the faults: each a function of (host, suffix of the trace, folder, chance) --

Fault = Callable[[Host, str, Path, random.Random], Outcome]


def strike_at(chance: random.Random) -> int:
    return chance.randint(*STRIKES_AT)


def nothing(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    run = host.start(folder, folder / name)
    run.until(strike_at(chance))
    run.struck()
    outcome = outcome_of(run.ended())
    return all_there(outcome)


def all_there(outcome: Outcome) -> Outcome:
    if outcome.missing or outcome.dropped != 0:
        outcome.complaints.append(f"{outcome.missing} events are missing, {outcome.dropped} are counted")
    return outcome


def counted(outcome: Outcome) -> Outcome:
    """All that is missing is counted in the end record."""
    if outcome.dropped is None or outcome.missing != outcome.dropped:
        outcome.complaints.append(
            f"{outcome.missing} events are missing, {outcome.dropped} are counted; the log: {outcome.said}"
        )
    return outcome


def counted_in_the_log(outcome: Outcome) -> Outcome:
    """The trace has no end record; the server's log says how many events it had seen."""
    if outcome.dropped is None and f"; {outcome.seen} events were seen so far" not in outcome.said:
        outcome.complaints.append(f"{outcome.seen} were seen, and the log does not say so: {outcome.said}")
    return outcome


def server_killed(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """kill -9, at any moment of its first second, its start included."""
    run = host.start(folder, folder / name, steps=1 << 30, pace=SLOW_PACE)
    time.sleep(chance.uniform(0.0, 1.2))
    os.kill(run.pid, signal.SIGKILL)
    outcome = outcome_of(run.ended(), killed=True, judged=chance.random() < 0.03)
    if outcome.file == "torn":
        outcome.complaints.append("the file is torn, though the process that writes lives on")
    if outcome.missing > MOST_LOST:
        outcome.complaints.append(f"{outcome.missing} events are lost, more than {MOST_LOST}")
    return outcome


def both_killed(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The server and the process that writes, as when a container runs out of memory."""
    run = host.start(folder, folder / name, steps=1 << 30, pace=SLOW_PACE)
    writer = run.writer()
    time.sleep(chance.uniform(0.0, 1.2))
    for pid in (writer, run.pid):
        os.kill(pid, signal.SIGKILL)
    return outcome_of(run.ended(), killed=True, judged=chance.random() < 0.03)


def writer_killed(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    run = host.start(folder, folder / name)
    run.until(strike_at(chance))
    os.kill(run.writer(), signal.SIGKILL)
    run.struck()
    return counted(outcome_of(run.ended()))


def disk_full(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    with small_disk(folder / "disk", name) as disk:
        run = host.start(folder, disk / name, **({} if disk.is_mount() else {"file_bytes": small_size(name)}))
        run.until(400)
        deadline = time.monotonic() + 60
        while "stops recording" not in run.log() and run.steps < RUNS_FOR - 200 and time.monotonic() < deadline:
            time.sleep(0.002)
        run.struck()
        return counted(outcome_of(run.ended()))


def read_only(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    disk = folder / "disk"
    with small_disk(disk, name, "ro"):
        task: dict[str, Any] = {}
        if not disk.is_mount():
            disk.chmod(0o555)
            task = {"user": NOBODY} if os.getuid() == 0 else {}
        run = host.start(folder, disk / name, **task)
        run.until(strike_at(chance))
        run.struck()
        outcome = outcome_of(run.ended())
    if outcome.said.count("kvproof records nothing: ") != 1 or outcome.file != "absent":
        outcome.complaints.append(f"{outcome.file}, and the log says {outcome.said!r}")
    return outcome


def short_stall(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The disk stalls and goes on: the buffer bridges it."""
    run = host.start(folder, folder / name)
    run.until(strike_at(chance))
    writer = run.writer()
    os.kill(writer, signal.SIGSTOP)
    run.struck()
    time.sleep(0.3)
    os.kill(writer, signal.SIGCONT)
    return all_there(outcome_of(run.ended()))


def stalled_until_full(run: Run, seconds: float) -> int:
    """The writer, which was stopped until the server's buffer was full, or until the time was up."""
    writer = run.writer()
    os.kill(writer, signal.SIGSTOP)
    run.struck()
    deadline = time.monotonic() + seconds
    while "written too slowly" not in run.log() and time.monotonic() < deadline:
        time.sleep(0.01)
    return writer


def long_stall(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The disk stalls until the buffer is full, and goes on after that."""
    run = host.start(folder, folder / name, buffer_bytes=SMALL_BUFFER[host.kind], steps=100_000)
    run.until(strike_at(chance))
    writer = stalled_until_full(run, 90)
    os.kill(writer, signal.SIGCONT)
    stop_soon(run)
    outcome = within_the_buffer(outcome_of(run.ended()), SMALL_BUFFER[host.kind])
    # A server that ends sooner than all that waited is written leaves no end record.
    return counted(outcome) if outcome.dropped is not None else counted_in_the_log(outcome)


def stall_for_ever(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The disk stalls and never goes on. The reference fills the whole buffer; SGLang puts less down, and gets a smaller one."""
    buffer_bytes = BUFFER_BYTES if host.kind == "reference" else BUFFER_BYTES // 16
    run = host.start(folder, folder / name, steps=400_000, pace=0.0, buffer_bytes=buffer_bytes)
    run.until(strike_at(chance))
    writer = stalled_until_full(run, 240)
    stop_soon(run)
    run.ended()
    os.kill(writer, signal.SIGKILL)
    return counted_in_the_log(within_the_buffer(outcome_of(run, judged=False), buffer_bytes))


def stop_soon(run: Run) -> None:
    """Let it serve for some time yet, then end it as an operator would."""
    run.until(run.steps + 500)
    os.kill(run.pid, signal.SIGTERM)
    run.task["steps"] = run.steps


def within_the_buffer(outcome: Outcome, buffer_bytes: int) -> Outcome:
    if outcome.waited > buffer_bytes + (1 << 16):
        outcome.complaints.append(f"{outcome.waited} bytes waited in a buffer of {buffer_bytes}")
    if "written too slowly" not in outcome.said:
        outcome.complaints.append(f"the buffer never was full: {outcome.said}")
    return outcome


def clock(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The time of day jumps every fifty steps: a day back, an hour on, thirty years back and on."""
    return all_there(
        outcome_of(host.start(folder, folder / name, harm="clock", at=strike_at(chance), again=50).ended())
    )


def forks(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """Forks of the server go on with what it does; two of them outlive it."""
    run = host.start(folder, folder / name, harm="fork", at=strike_at(chance), again=700).ended()
    began = time.monotonic()
    while is_being_written(run.trace):
        time.sleep(0.01)
    took = time.monotonic() - began
    outcome = all_there(outcome_of(run))
    if took > 5:
        outcome.complaints.append("the trace ended only when the last fork did")
    return outcome


def two_servers(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """A second one writes into the same path."""
    run = host.start(folder, folder / name)
    run.until(strike_at(chance))
    run.struck()
    other = host.start(folder / "other", folder / name, steps=600)
    other.ended()
    outcome = all_there(outcome_of(run.ended()))
    second = all_there(outcome_of(other, trace=next(path for path in folder.glob("t.*.*") if path.suffix != ".board")))
    outcome.complaints += [f"the second server: {complaint}" for complaint in second.complaints]
    return outcome


def no_memory(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """Packing raises MemoryError from some step on, and so does starting a thread."""
    return counted(outcome_of(host.start(folder, folder / name, harm="no memory", at=strike_at(chance)).ended()))


FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "server killed": server_killed,
    "server and writer killed": both_killed,
    "writer killed": writer_killed,
    "disk full": disk_full,
    "read-only directory": read_only,
    "disk stalls for 0.3 s": short_stall,
    "disk stalls, small buffer": long_stall,
    "disk stalls for ever": stall_for_ever,
    "clock steps": clock,
    "forks": forks,
    "two servers, one path": two_servers,
    "no memory for the buffer": no_memory,
}
KILLS = ("server killed", "server and writer killed")
ONCE = ("disk stalls for ever",)


def small_size(name: str) -> int:
    return 1 << 16 if name.endswith(".kvtrace") else 1 << 21


@contextmanager
def small_disk(at: Path, name: str, *options: str) -> Iterator[Path]:
    """A file system of its own, of few bytes, where this user may mount one; else a folder."""
    at.mkdir(parents=True, exist_ok=True)
    size = ",".join((f"size={small_size(name)}", *options))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(at)], capture_output=True, check=False)
    try:
        yield at
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(at)], capture_output=True, check=False)


# -- many runs, and the table --


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
        f"`benchmarks/faults.py` says what each fault is; full and read-only disk: {real}.",
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
        """All faults of one server, one after the other; both servers have theirs at once."""
        host, noise = Host(server), 0.0
        for fault, form, often in plan(arguments.kills, arguments.times, arguments.fault or ()):
            row = run_row(host, fault, form, often, arguments.seed, folder / server / fault.replace(" ", "-"), noise)
            if fault == "nothing":
                noise = max(noise, *(abs(outcome.pause or 0.0) for outcome in row.outcomes))
            rows.append(row)
            arguments.out.write_text(
                page(rows, kept, arguments.seed, began)
            )  # what was done stays, also where it is stopped
            print("\n  ".join([" | ".join(row.cells()), *row.complaints]), flush=True)
        host.close()

    with tempfile.TemporaryDirectory(prefix="kvproof-faults-", dir=in_memory) as folder, ThreadPoolExecutor() as pool:
        Path(folder).chmod(0o755)
        for done in [pool.submit(harm, server, Path(folder)) for server in servers]:
            done.result()
    print(f"written: {arguments.out}")
    sys.exit(any(row.complaints for row in rows))


if __name__ == "__main__":
    main()
