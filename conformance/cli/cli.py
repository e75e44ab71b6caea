"""The command line, `kvproof COMMAND`. The commands stand in `command_table.py`, one file each in `commands/`.

A command ends by returning (exit code 0) or by `raise typer.Exit(ExitCode.…)`. Starting up must be quick: a command is
imported when it is asked for, and a package of an extra (z3, torch, hypothesis) when the command needs it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.core
import typer.main

from kvproof.conformance.cli.command_table import COMMANDS
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import MEANING, ExitCode
from kvproof.conformance.report import terminal
from kvproof.conformance.report.answer import answering
from kvproof.conformance.report.needs import naming_what_is_missing
from kvproof.conformance.report.terminal import complain

SETTINGS = {"help_option_names": ["-h", "--help"]}
MARKUP: Literal["rich"] = "rich"

_EXAMPLES = """

Examples:

[bold]kvproof prove[/bold]: are the rules safe?

[bold]kvproof prove --variant my_fix.py[/bold]: is my changed rule safe?

[bold]kvproof record --scenario retract --out t.jsonl[/bold]: what does a cache do?

[bold]kvproof replay t.jsonl[/bold]: does it follow the rules?

[bold]kvproof fuzz --seconds 60[/bold]: which schedule breaks it?
"""

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"[bold]{code.value}[/bold] {meaning}" for code, meaning in MEANING.items())


def _without_types(params: list[Any]) -> list[Any]:
    """Help names a value, as `--seed SEED`, and not its type in Python; a flag takes none."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: ""  # its name stands beside it
        elif param.is_flag:
            param.metavar = ""
        elif param.metavar is None:
            param.metavar = param.name.upper()
    return params


class _Command(typer.core.TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Commands(typer.core.TyperGroup):
    """The table of commands. What is shown of all of them is in the table; one is imported when it is run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: typer.core.TyperCommand(name, help=entry.summary, rich_help_panel=entry.group)
            for name, entry in COMMANDS.items()
        }

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, imported(name) if name is not None else command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # while a command is imported; later `_answering` is there
            complain("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from error


def imported(name: str) -> Any:
    """A command of the table, ready to run."""
    entry = COMMANDS[name]
    command = getattr(import_module(f"kvproof.conformance.cli.commands.{entry.module}"), entry.function)
    alone = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=MARKUP, context_settings=SETTINGS
    )
    alone.command(name, cls=_Command)(_answering(name, command))
    return typer.main.get_command(alone)


def _answering(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command with `--json`, `--verbose` and `--quiet`, and with every way of failing mapped to its exit code.

    A command that prints something with `--quiet`, too, has that option itself and says what.

    Python itself exits with 1 on an uncaught exception, which here means "an invariant is broken": a bug in kvproof, a
    full disk or a closed pipe must not be mistaken for that.
    """

    signature = inspect.signature(command, eval_str=True)
    has_quiet = "quiet" in signature.parameters

    @functools.wraps(command)
    def answered(
        *args: object, json_file: Path | None = None, verbose: bool = False, quiet: bool = False, **kwargs: object
    ) -> None:
        with terminal.verbosity(verbose, quiet):
            try:
                try:
                    with answering(name, json_file), naming_what_is_missing():
                        command(*args, **kwargs, **({"quiet": quiet} if has_quiet else {}))
                finally:
                    sys.stdout.flush()  # here, where a closed pipe still gets its exit code
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(_complained(error, verbose)) from error

    added = {"json_file": (_JSON, None), "quiet": (_QUIET, False), "verbose": (_VERBOSE, False)}
    options = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for option, (annotation, default) in added.items()
        if option not in signature.parameters
    ]
    answered.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *options]
    )
    return answered


def _complained(error: BaseException, verbose: bool) -> ExitCode:
    """Say on stderr what ended a command; the exit code that says it."""
    if _is_ctrl_c(error):
        complain("interrupted")
        return ExitCode.INTERRUPTED
    if isinstance(error, UserError):
        if verbose and error.__cause__ is not None:
            traceback.print_exc()
        complain(error.message)
    elif isinstance(error, BrokenPipeError):
        # Whoever read the output went away. Python flushes stdout once more at exit and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        traceback.print_exc()
        complain(f"this is a bug in kvproof, not in what it checked: {type(error).__name__}: {error}")
    return ExitCode.COULD_NOT_RUN


def _is_ctrl_c(error: BaseException) -> bool:
    """Z3 is called by ctypes, which says so in an error of its own where Ctrl-C comes while an argument is converted."""
    is_of_ctypes = type(error).__name__ == "ArgumentError" and "KeyboardInterrupt" in str(error)
    return isinstance(error, KeyboardInterrupt) or is_of_ctypes


_JSON = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; -: to stdout, and all else to stderr."),
]
_QUIET = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")]
_VERBOSE = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Say on stderr what is done, how long it took, and why an error came up."),
]


def _print_versions(wanted: bool) -> None:
    if not wanted:
        return
    import_module("kvproof.conformance.cli.versions").print_versions()
    raise typer.Exit


app = typer.Typer(
    name="kvproof",
    cls=_Commands,
    help="Shows that the paged KV cache of an inference server never loses, shares or corrupts a page." + _EXAMPLES,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings=SETTINGS,
)


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
