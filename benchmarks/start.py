"""How long the command line takes to answer: `make bench-start`. Writes benchmarks/results/start.md.

Whole processes, as a user starts them, each command in turn, by the clock and by the processor. Beside them what cannot be
saved: Python itself, and Python with the libraries that print the help.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from measuring import machine, say

PAGE = Path(__file__).parent / "results" / "start.md"
PROGRAM = str(Path(sys.executable).with_name("kvproof"))
FLOOR = {
    "python": [sys.executable, "-c", "pass"],
    "python, typer and its help by rich": [sys.executable, "-c", "import typer.rich_utils"],
}
COMMANDS = {
    "`kvproof --help`": [PROGRAM, "--help"],
    "`kvproof --version`": [PROGRAM, "--version"],
    "`kvproof prove --help`": [PROGRAM, "prove", "--help"],
    "`kvproof list faults`": [PROGRAM, "list", "faults"],
    "`kvproof list scenarios`": [PROGRAM, "list", "scenarios"],
    "completion of a fault's name": [PROGRAM],
}
TAB = {"_KVPROOF_COMPLETE": "complete_bash", "COMP_WORDS": "kvproof prove --fault F2", "COMP_CWORD": "3"}
GOALS = {"`kvproof --help`": 0.3, "`kvproof list faults`": 0.5, "`kvproof list scenarios`": 0.5}


def timed(name: str, command: list[str]) -> tuple[float, float]:
    """Seconds by the clock and by the processor."""
    environment = {**os.environ, **(TAB if command == [PROGRAM] else {})}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    by_clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return by_clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    asked = {**FLOOR, **COMMANDS}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for number in range(runs + 1):
        say(f"run {number} of {runs}")
        for name, command in asked.items():
            taken = timed(name, command)
            if number:  # the first one reads files that nobody had read
                times[name].append(taken)
    load = os.getloadavg()[0]
    lines = [
        "# Start: how long the command line takes to answer",
        "",
        f"Written by `make bench-start`. {machine()}; load at the end: {load:.0f}.",
        f"Whole processes, {runs} of each, in turn; seconds, median (smallest to largest).",
        "",
        "| what | by the clock | by the processor | goal |",
        "| --- | --- | --- | --- |",
    ]
    for name, taken in times.items():
        cells = [f"{median(kind):.2f} ({min(kind):.2f} to {max(kind):.2f})" for kind in zip(*taken, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} | {f'{GOALS[name]:.1f}' if name in GOALS else ''} |")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
