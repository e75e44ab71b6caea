"""`kvproof drive`: an implementation along a trace, step by step."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import fault_option
from kvproof.conformance.cli.progress_bar import ReplayPace
from kvproof.conformance.drive.drive import drive as run_drive
from kvproof.conformance.errors import unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.show_drive import as_json, save_seen, verdict_lines
from kvproof.conformance.report.terminal import Progress, say_lines, tell
from kvproof.conformance.traces.file_names import require_ending
from kvproof.conformance.whole_file import require_other_file, require_writable_file

TARGETS = ("reference",)
"""Implementations that can be driven, event by event."""


def drive(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace (.jsonl or .jsonl.gz).")],
    target: Annotated[
        str,
        typer.Option(help=f"What to drive; one of: {', '.join(TARGETS)}.", autocompletion=completions.of(TARGETS)),
    ] = "reference",
    fault: Annotated[
        list[str] | None,
        fault_option("Turn a fault of the implementation on (repeatable).", metavar="F"),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save what the implementation did as a trace.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="One line.")] = False,
) -> None:
    """Make an implementation do what a trace says, and compare what it does, event by event.

    Pages and rows may have other numbers. Exits with 0 if nothing differs, 1 at the first event where the implementation
    diverges, 2 if it cannot be driven along this trace, 3 if the trace is incomplete.

    Example: [bold]kvproof prove --fault F22862b --out t.jsonl; kvproof drive t.jsonl --fault F22862b[/bold]
    """
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    if out_file is not None:
        require_ending(out_file)
        require_other_file(out_file, trace)
        require_writable_file(out_file)
    with Progress(f"driving {target} along {trace}") as progress:
        report = run_drive(trace, faults=tuple(fault or ()), progress=ReplayPace(progress))
    if out_file is not None:
        save_seen(report, out_file)
    answer_with(**as_json(report))
    if quiet:
        print(f"{report.verdict}\t{trace}\t{report.events} events")  # not by rich, which turns tabs into spaces
    else:
        say_lines(verdict_lines(report))
    if report.first is not None:
        faults = "".join(f" --fault {name}" for name in report.faults)
        tell(f"\n  again: kvproof drive {shlex.quote(str(trace))}{faults}", "dim")
        raise typer.Exit(ExitCode.VIOLATION)
    if report.why_incomplete:
        raise typer.Exit(ExitCode.INCONCLUSIVE)
