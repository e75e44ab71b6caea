"""The program as a user runs it, in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from kvproof.conformance.cli import cli

PROGRAM = str(Path(sys.executable).with_name("kvproof"))


def of_its_own(*arguments: object) -> list[str]:
    """The command that starts it in a process of its own."""
    return [PROGRAM, *map(str, arguments)]


def completed(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that came to its end; what it wrote, as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def require_exit(code: int, *arguments: object) -> Result:
    """A command that ended with this exit code."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    return result


UNTIL_FOUND = ("--seed", 1, "--seconds", 300, "--checker", "interpreted", "--stop-after", 1)
"""Of `kvproof fuzz` with a fault that there is: it takes seconds, and on a machine that has much to do it may take more."""


def refusal(*arguments: object) -> str:
    """The one line on stderr of a command that could not run."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr
