"""What benchmarks and tools share: the machine that they name, the pages that they write, the command line that they time, and
the process that writes the trace of a server."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
"""Pages that benchmarks and tools write. Git keeps them."""
CLI = [sys.executable, "-c", "from kvproof.conformance.cli.program import main; main()"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write_page(page: Path, text: str) -> None:
    """Write a page and print its path to stderr."""
    page.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    say(f"written: {page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page}")


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """A table in Markdown, line by line."""
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return lines + [f"| {' | '.join(f'{c:,}' if isinstance(c, int) else str(c) for c in row)} |" for row in rows]


def machine(*versions: str) -> str:
    """Cores and processor, as lscpu names it, and versions; no host name."""
    name = platform.machine()
    try:
        lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout.splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("Model name")), name)
    except OSError:
        pass
    return ", ".join([f"{os.cpu_count()}-core {name} VM", f"Python {platform.python_version()}", *versions])


def spread(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    """Median, and smallest to largest; a dash where there is nothing."""
    listed = list(values)
    if not listed:
        return "-"
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(listed), statistics.median(listed), max(listed)))
    return f"{middle}{unit} ({low} to {high})"


def writer_of(trace: Path, server: int) -> int:
    """The process that has the trace of a server open; neither that server nor a fork of it. AssertionError: there is none."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != server:
                with suppress(OSError):  # it may be closing one of its files
                    if parent_of(entry) != server and trace in [link.readlink() for link in (entry / "fd").iterdir()]:
                        return int(entry.name)
        time.sleep(0.01)
    raise AssertionError(f"no process writes {trace}")


def parent_of(process: Path) -> int:
    """Of /proc/PID."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])
