"""`kvproof replay`: traces against the specification."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, unknown
from ..exit_codes import ExitCode
from ..terminal import Progress, out, say, write_json


def replay(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces (.jsonl or .jsonl.gz).")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Count deviations that a release is known to have as violations.")
    ] = False,
    checker: Annotated[
        str,
        typer.Option(
            metavar="auto|compiled|interpreted",
            help="Who judges: the rules as they are, or compiled (kvproof\\[scale]). auto: compiled if the trace is large.",
        ),
    ] = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result for machines.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="One line for each trace.")] = False,
) -> None:
    """Check traces event by event and page by page; show the first bad event and the fault that explains it.

    Exits with 0 if all conform, 1 if one violates a rule, 3 if one is incomplete, 2 if nothing was checked.

    Example: [bold]kvproof replay out/retract.jsonl[/bold]
    """
    from ..replay import CHECKERS, CONFORMS, INCOMPLETE, VIOLATES
    from ..replay import replay as run_replay
    from ..show_replay import as_json, checked, verdict_lines

    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    reports = []
    for path in traces:
        with Progress(f"replaying {path}", quiet=quiet) as progress:
            report = run_replay(path, strict=strict, progress=progress, checker=checker)
        reports.append(report)
        if quiet:
            names = sorted({f.id for finding in report.findings for f in finding.explained_by})
            say(f"{report.verdict}\t{path}\t{checked(report)}" + (f"\t{' '.join(names)}" if names else ""))
        else:
            for line in verdict_lines(report):
                out().print(line, soft_wrap=True)
        if report.verdict == VIOLATES and not quiet:
            options = " --strict" if strict else ""
            say(f"\n  again: kvproof replay {shlex.quote(str(path))}{options}", "dim")
    if json_file is not None:
        write_json(json_file, [as_json(r) for r in reports])
    verdicts = {r.verdict for r in reports}
    if VIOLATES in verdicts:
        raise typer.Exit(ExitCode.VIOLATION)
    empty = [str(r.path) for r in reports if r.events == 0]
    if empty and verdicts <= {CONFORMS}:
        raise UserError(f"nothing was checked: no events in {', '.join(empty)}")
    if INCOMPLETE in verdicts:
        raise typer.Exit(ExitCode.INCONCLUSIVE)
