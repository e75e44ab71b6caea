"""The program as a user runs it, in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from kvproof.conformance.cli import cli


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


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
