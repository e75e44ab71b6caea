"""A server under a fault: starting it, striking at a step, and what became of it and of its trace. See `__main__.py`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import writer_of

from kvproof.conformance.adapters.live.handover import PATIENCE_SECONDS
from kvproof.conformance.adapters.live.live_trace import is_being_written
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import VIOLATES, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event
from recorder_faults.recorded_server import ENDING_SECONDS as ENDING
from recorder_faults.recorded_server import HARMED_AT, SEEN, STEPS, Board
from recorder_faults.recorded_server import WAITED_BYTES as WAITED

SGLANG = Path(__file__).resolve().parents[2] / ".venv-sglang"
RELEASE = "0.5.11"
STRIKES_AT, RUNS_FOR = (1300, 1600), 2600
STEPS_BEFORE = 600
"""Those before a fault that count: when the first ones ran, the process that writes was still starting."""
PACE = 0.0005
"""Seconds that a forward takes, beside the time that is taken: without any, events come faster than from any server."""


class Host:
    """A server that was started once; each run is a fork of it."""

    def __init__(self, kind: str, environment: dict[str, str] | None = None) -> None:
        self.kind = kind
        tools = str(Path(__file__).parents[1])
        command, own = [sys.executable], {**os.environ, "PYTHONPATH": tools}
        if kind == "sglang":
            command = [str(SGLANG / "bin" / "python"), "-W", "ignore"]
            own["PYTHONPATH"] = os.pathsep.join((tools, str(SGLANG / "site" / RELEASE)))
        command.append(str(Path(__file__).with_name("recorded_server.py")))
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
        return writer_of(self.trace, self.pid)

    def log(self) -> str:
        """The end of it; nothing of a server that was killed before it had one."""
        log = self.folder / "log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


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
