"""What a command found out, for machines: `--json`, of every command and in one shape.

    {"command": "replay", "exit_code": 1, "verdict": "violates", ...}

A command says the rest with `answer_with`; an error says `error`, and an answer is written however the command ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import typer

from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.whole_file import require_writable_file, write_whole

STDOUT = Path("-")
NO_VERDICT = {
    ExitCode.COULD_NOT_RUN: "could not run",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.INTERRUPTED: "interrupted",
}
"""In place of a verdict. A command that gives none, as `record`, and ends with 0 has null."""

# A process has one answer, and one command runs at a time.
_answer: dict[str, Any] = {}


def answer_with(**fields: Any) -> None:
    """Fields of the command's answer. `verdict`: in the command's own words; it stands unless the command could not run."""
    _answer.update(fields)


@contextmanager
def answering(command: str, place: Path | None) -> Iterator[None]:
    """A command that may answer. `place`: a file, or `-` for stdout, while everything else goes to stderr; None: nowhere.

    Raises UserError at once for a file that cannot be written.
    """
    _answer.clear()
    if place is None:
        yield
        return
    is_stdout = place == STDOUT
    if not is_stdout:
        require_writable_file(place)

    def write(code: int, error: str | None) -> None:
        verdict = NO_VERDICT.get(ExitCode(code)) if code in set(ExitCode) else None
        if code in (ExitCode.PASS, ExitCode.VIOLATION, ExitCode.INCONCLUSIVE):
            verdict = _answer.get("verdict", verdict)
        why = {} if error is None else {"error": error}
        whole = {"command": command, "exit_code": code, **_answer, **why, "verdict": verdict}
        first = {name: whole.pop(name) for name in ("command", "exit_code", "verdict")}
        text = json.dumps({**first, **whole}, indent=1, default=str) + "\n"
        if is_stdout:
            sys.stdout.write(text)
        else:
            write_whole(place, [text])

    with ending(write), redirect_stdout(sys.stderr) if is_stdout else nullcontext():
        yield


@contextmanager
def ending(say: Callable[[int, str | None], None]) -> Iterator[None]:
    """However the block ends, `say` gets the exit code, and the error if there was one."""
    code: int = ExitCode.COULD_NOT_RUN
    error: str | None = None
    try:
        yield
        code = ExitCode.PASS
    except typer.Exit as stop:
        code = stop.exit_code
        raise
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
        raise
    except UserError as mistake:
        error = mistake.message
        raise
    except Exception as bug:
        error = f"a bug in kvproof: {type(bug).__name__}"
        raise
    finally:
        say(code, error)
