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
OF_WIDE_HEADS = 24
"""Bytes that kernels for head sizes over 128 spill on capability 8.0: a few scalars, nothing of a tile."""

SHARED_MEMORY = 163 * 1024
"""Bytes that a program may take on capability 8.0, the smaller of the two."""


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
    assert len(lines) == 36
    spilled = {line: int(re.search(r"(\d+) bytes spilled", line)[1]) for line in lines}  # type: ignore[index]
    wide = {line for line in lines if re.search("BLOCK_D=(256|1024)", line)}
    assert len(wide) == 12
    allowed = {line: OF_WIDE_HEADS if line in wide and capability == 80 else ALIGNMENT_OF_THE_STACK for line in lines}
    assert [line for line, count in spilled.items() if count > allowed[line]] == []
    shared = [int(re.search(r"(\d+) bytes shared", line)[1]) for line in lines]  # type: ignore[index]
    assert max(shared) <= SHARED_MEMORY
