"""The faults that strike a server that is recorded, each a function of (server, name of the trace, folder, chance).

What must hold is said by each of them in complaints; the bounds of time are in `__main__.py`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.live.handover import BUFFER_BYTES, RECORDS_OF_A_BATCH
from kvproof.conformance.adapters.live.live_trace import is_being_written
from recorder_faults.runs import RUNS_FOR, STRIKES_AT, Host, Outcome, Run, outcome_of

# A killed server takes what it had not sent: so many records, each a step or the results of six requests.
MOST_LOST = RECORDS_OF_A_BATCH * 6 + 24
SMALL_BUFFER = {"reference": 16 << 20, "sglang": 1 << 20}
"""Bytes: above what waits on a busy machine, and soon full."""
SLOW_PACE = 0.002
"""Seconds of a forward of a server that is killed."""
NOBODY = 65534

FORMS = {"lines": "t.jsonl", "columns": "t.kvtrace"}
"""Name of the trace in each form."""

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
    if outcome.file == "absent" and run.steps:
        outcome.complaints.append(f"after {run.steps} steps there is no trace: {run.log()}")
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
    """The disk stalls and continues: the buffer bridges it."""
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
    """The disk stalls until the buffer is full, and continues after that."""
    run = host.start(folder, folder / name, buffer_bytes=SMALL_BUFFER[host.kind], steps=100_000)
    run.until(strike_at(chance))
    writer = stalled_until_full(run, 90)
    os.kill(writer, signal.SIGCONT)
    stop_soon(run)
    outcome = within_the_buffer(outcome_of(run.ended()), SMALL_BUFFER[host.kind])
    # A server that ends sooner than all that waited is written leaves no end record.
    return counted(outcome) if outcome.dropped is not None else counted_in_the_log(outcome)


def stall_for_ever(host: Host, name: str, folder: Path, chance: random.Random) -> Outcome:
    """The disk stalls and never continues. The reference fills the whole buffer; SGLang writes less, and gets a smaller one."""
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
