"""SPIN on `session.pml`: generated, compiled and run for one small instance.

PYTHONPATH=tools python -m spin.verifier S0511b     the rules that a claim of liveness fails by; without a fault: whether all hold
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("session.pml")
LIVENESS = {
    "runs": "a queued turn runs or is refused",
    "ends": "a turn ends, however often it is retracted",
    "closes": "a close that waits is done",
}
"""The claims of `session.pml`, as sentences."""


@dataclass(frozen=True)
class Found:
    """One run of the verifier: states it stored, steps to the first violation (0: none), seconds."""

    states: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Verifier:
    """A compiled verifier in a folder of its own."""

    folder: Path
    build_seconds: float

    def run(self) -> Found:
        begin = time.perf_counter()
        text = _output(["./pan", "-m1000000"], self.folder)
        seconds = time.perf_counter() - begin
        states = re.search(r"(\d+) nominal states", text) or re.search(r"(\d+) states, stored", text)
        depth = re.search(r"at depth (\d+)", text)
        if states is None or "max search depth too small" in text:
            raise SystemExit(f"SPIN's verifier did not finish:\n{text}")
        # Each step is three transitions of the verifier: the action, the end of the choice, the check of the invariants.
        return Found(int(states[1]), int(depth[1]) // 3 + 1 if depth else 0, seconds)


def missing() -> str:
    """What is not installed, in words; empty where all is."""
    absent = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


@contextmanager
def verifier(page_size: int, row_width: int, ledgers: int = 1, fault: str = "") -> Iterator[Verifier]:
    """All states depth first; with a fault breadth first, so that the run found is a shortest one."""
    switches = [f"-DP={page_size}", f"-DW={row_width}", f"-DN={ledgers}"]
    switches += [f"-D{fault.upper()}"] if fault else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.perf_counter()
        _output(["spin", *switches, "-a", str(MODEL)], folder)
        _output(["gcc", "-O2", "-DSAFETY", *(["-DBFS"] if fault else []), "-o", "pan", "pan.c"], folder)
        yield Verifier(folder, time.perf_counter() - begin)


@dataclass(frozen=True)
class Cycle:
    """Rules that lead to a cycle, and those that are taken again and again while a claim waits. `*`: by the scheduler."""

    before: tuple[str, ...]
    again: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' '.join(self.before)}; then for ever: {' '.join(self.again) or 'nothing'}"


def forever(claim: str, page_size: int, row_width: int, fault: str = "", *, is_fair: bool = True) -> Cycle | None:
    """How a claim of LIVENESS can wait for ever on one ledger, or None where it holds in all runs.

    `is_fair`: the scheduler is not kept waiting for ever (weak fairness).
    """
    switches = ["-DLIVENESS", f"-DP={page_size}", f"-DW={row_width}", *([f"-D{fault.upper()}"] if fault else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(MODEL, folder)
        _output(["spin", *switches, "-a", MODEL.name], folder)
        _output(["gcc", "-O2", "-o", "pan", "pan.c"], folder)
        # Assertions and ends of processes are not what is asked here.
        text = _output(["./pan", "-a", *(["-f"] if is_fair else []), "-A", "-E", "-m100000", "-N", claim], folder)
        if "errors: 0" in text and "max search depth too small" not in text:
            return None
        if "acceptance cycle" not in text:
            raise SystemExit(f"SPIN's verifier did not finish:\n{text}")
        return _cycle(_output(["spin", *switches, "-t", "-p", MODEL.name], folder))


STEP = re.compile(r"\s*(\d+):\s+proc\s+(\d) \(session:1\) session\.pml:(\d+) ")
RULE = re.compile(r"/\* (\w+) \*/$|^  FOR_LEN\((\w+)\)$")


def _cycle(trail: str) -> Cycle:
    """A trail as the rules that it takes: each begins on a line of the model that names it."""
    lines = MODEL.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if "proctype" in line)
    parts: list[dict[str, str]] = [{}]
    for line in trail.splitlines():
        if "START OF CYCLE" in line:
            parts.append({})
        elif (step := STEP.match(line)) and int(step[3]) > first and (rule := RULE.search(lines[int(step[3]) - 1])):
            parts[-1].setdefault(step[1], (rule[1] or rule[2].lower()) + ("*" if step[2] == "1" else ""))
    before, again = (tuple(part.values()) for part in parts)
    return Cycle(before, again)


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and command[0] != "./pan":
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(fault: str = "") -> None:
    """Say of each claim whether it holds."""
    if absent := missing():
        raise SystemExit(absent)
    for claim, sentence in LIVENESS.items():
        print(f"{sentence}: {forever(claim, 1, 3, fault) or 'holds'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
