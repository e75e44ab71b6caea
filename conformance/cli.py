"""The command line, `kvproof COMMAND`. One file per command, in `commands/`.

A command ends by returning (exit code 0) or by `raise typer.Exit(ExitCode.…)`. Starting up must be quick: each command
imports what is heavy (z3, torch, the schema) inside its function.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from .commands.convert import convert
from .commands.drive import drive
from .commands.fuzz import fuzz
from .commands.info import info
from .commands.list import list_
from .commands.prove import prove
from .commands.record import record
from .commands.replay import replay
from .commands.sglang_env import sglang_env
from .commands.shrink import shrink
from .commands.slice import slice_
from .commands.watch import watch
from .errors import UserError
from .exit_codes import MEANING, ExitCode
from .terminal import complain, say

COMMANDS: dict[str, Callable[..., None]] = {
    "prove": prove,
    "record": record,
    "replay": replay,
    "watch": watch,
    "drive": drive,
    "fuzz": fuzz,
    "info": info,
    "list": list_,
    "convert": convert,
    "slice": slice_,
    "shrink": shrink,
    "sglang-env": sglang_env,
}

_EPILOG = "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANING.items()) + "."

app = typer.Typer(
    name="kvproof",
    help="Shows that the paged KV cache of an inference server never loses, shares or corrupts a page.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _answering(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every way of failing mapped to its exit code.

    Python itself exits with 1 on an uncaught exception, which here means "an invariant is broken": a bug in kvproof, a
    full disk or a closed pipe must not be mistaken for that.
    """

    @functools.wraps(command)
    def answered(*args: object, **kwargs: object) -> None:
        try:
            try:
                command(*args, **kwargs)
            finally:
                sys.stdout.flush()  # here, where a closed pipe still gets its exit code
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except UserError as error:
            complain(error.message)
            raise typer.Exit(ExitCode.COULD_NOT_RUN) from error
        except KeyboardInterrupt as error:
            complain("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from error
        except BrokenPipeError as error:
            # Whoever read the output went away. Python flushes stdout once more at exit and would complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.COULD_NOT_RUN) from error
        except Exception as error:
            traceback.print_exc()
            complain(f"this is a bug in kvproof, not in what it checked: {type(error).__name__}: {error}")
            raise typer.Exit(ExitCode.COULD_NOT_RUN) from error

    return answered


for _name, _command in COMMANDS.items():
    app.command(_name)(_answering(_command))


def _print_versions(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    from kvproof.spec import SPEC_VERSION
    from kvproof.spec.trace import TRACE_FORMAT

    say(f"kvproof {version('kvproof')}")
    say(f"spec {SPEC_VERSION}")
    say(f"trace format {TRACE_FORMAT}")
    try:
        say(f"z3 {version('z3-solver')}")
    except PackageNotFoundError:  # recording needs no solver, so a server's environment may lack it
        say("z3 not installed: this environment can record, but not prove")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print the versions of all parts and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:  # while the commands are still being imported
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
