"""Every kernel compiles to machine code of CUDA devices, also where there is none: the interpreter accepts more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compile_kernels.py")
ALIGNMENT_OF_THE_STACK = 8
"""Bytes that some kernels have on the stack without spilling."""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_every_kernel_compiles(capability: int, tmp_path: Path) -> None:
    """In a process of its own, where Triton is no interpreter. None may spill registers: that costs bandwidth."""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, str(SCRIPT), str(capability)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    lines = run.stdout.splitlines()
    assert len(lines) == 24
    spilled = {line: int(re.search(r"(\d+) bytes spilled", line)[1]) for line in lines}  # type: ignore[index]
    assert [line for line, count in spilled.items() if count > ALIGNMENT_OF_THE_STACK] == []
