"""Runs the scripts of docs/findings on the SGLang of this environment, each in a fork, so that SGLang is imported once.

The scripts need nothing but sglang; on a machine without a GPU it is what they import, with stand-ins for its GPU packages, that
they find already there.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

from make_env import ENVIRONMENT, ROOT

FINDINGS = ROOT / "docs" / "findings"
HELPERS = ("harness", "drafts")


def found() -> dict[str, dict[str, bool]]:
    """Of each script what it looked for: whether it is there."""
    from kvproof.conformance.adapters.sglang.engine import import_sglang

    import_sglang()
    sys.path.insert(0, str(FINDINGS))
    scripts = sorted(path for path in FINDINGS.glob("*.py") if path.stem not in HELPERS)
    return {script.stem: answers(lines_of(script)) for script in scripts}


def answers_on(site: Path, finding: str) -> dict[str, bool]:
    """What one script looked for on the SGLang of a folder, in a process of its own; empty if it says nothing."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", str(FINDINGS / f"{finding}.py")]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    return answers(done.stdout.splitlines())


def lines_of(script: Path) -> list[str]:
    """What the script prints. It ends its process by itself, so it runs in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 1)
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.stdout.flush()
            os._exit(3)
    os.close(writer)
    with os.fdopen(reader) as output:
        lines = output.read().splitlines()
    os.waitpid(child, 0)
    return lines


def answers(lines: list[str]) -> dict[str, bool]:
    """`there: what` and `not there: what` of what a script printed."""
    said = [line.partition(": ") for line in lines]
    return {what: answer == "there" for answer, colon, what in said if colon and answer in ("there", "not there")}
