"""What benchmarks have in common: the machine that they name, the command that they time, and a word on what runs now."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable

CLI = [sys.executable, "-c", "from kvproof.conformance.cli import main; main()"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
