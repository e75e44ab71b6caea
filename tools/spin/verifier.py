"""SPIN on `session.pml`: generated, compiled and run for one small instance."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("session.pml")


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


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and command[0] != "./pan":
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
