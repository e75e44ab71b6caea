"""`kvproof prove`: every invariant for every action, or what a fault breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError, unknown
from ..exit_codes import ExitCode
from ..terminal import Progress, out, say, write_json


def prove(
    fault: Annotated[
        str | None, typer.Option("--fault", metavar="F", help="Break one rule on purpose; see `kvproof list faults`.")
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save the shortest run as a trace; needs --fault.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result for machines.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Leave out the tables.")] = False,
) -> None:
    """Prove every invariant for every action, for every page size and any number of sessions.

    With --fault: show which invariants the faulty rule breaks, and the shortest run that does. Exits with 0 if all is
    proved, 1 if something is broken, 3 if the solver gave no answer.

    Example: [bold]kvproof prove --fault F22862b[/bold]
    """
    from kvproof.model.prove import prove as run_proof
    from kvproof.spec.faults import FAULTS
    from kvproof.spec.machine import MACHINES

    from ..counterexample import save_counterexample
    from ..show_proof import as_json, breaks_line, effects_table, failures, matrix, run_lines, summary

    if fault is not None and fault not in FAULTS:
        raise unknown("fault", fault, FAULTS)
    chosen = FAULTS[fault] if fault else None
    if out_file is not None and chosen is None:
        raise UserError("--out saves the shortest run of a faulty rule: name the rule with --fault")
    with Progress("proving", quiet=quiet) as progress:
        proof = run_proof(chosen, progress.show)
    if json_file is not None:
        write_json(json_file, as_json(proof))
    if out_file is not None and chosen is not None:
        save_counterexample(proof.counterexample, chosen, out_file)
    console = out()
    if chosen and not quiet:
        say(f"{chosen.id} ({chosen.source}): {chosen.summary}", "bold")
        for name in chosen.deviations:
            say(f"deviates from: {name} ({chosen.machine.actions[name].summary})")
        say(breaks_line(proof))
        if proof.counterexample is None:
            say(
                "no run of the small instances shows it: perhaps it starts from a state that is never reached", "yellow"
            )
        for text in run_lines(proof.counterexample) if proof.counterexample else []:
            console.print(text, soft_wrap=True)
    elif not quiet:
        for machine in MACHINES:
            console.print(matrix(proof, machine), soft_wrap=True)
        console.print(effects_table(proof), soft_wrap=True)
    if not chosen:
        for line in summary(proof):
            say(line)
        for line in failures(proof):
            say(line, "red")
    verdict = {"proved": "PROVED", "broken": "BROKEN", "unknown": "UNKNOWN"}[proof.verdict]
    say(verdict, {"proved": "bold green", "broken": "bold red", "unknown": "bold yellow"}[proof.verdict])
    if proof.verdict == "broken":
        raise typer.Exit(ExitCode.VIOLATION)
    if proof.verdict == "unknown":
        raise typer.Exit(ExitCode.INCONCLUSIVE)
