"""`kvproof shrink`: shrink a trace that violates a rule."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli.commands.options import JudgedBy
from kvproof.conformance.cli.progress_bar import ShrinkPace
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.finding_words import NO_FAULT, finding_json
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.replay.verdict import INCOMPLETE
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.show_replay import replay_command
from kvproof.conformance.report.terminal import Progress, complain, say
from kvproof.conformance.shrink.shrink_trace import NothingToShrink, Shrunk, TraceShrinker
from kvproof.conformance.traces.file_names import require_ending
from kvproof.conformance.whole_file import require_other_file, require_writable_file


def shrink(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A trace with a violation (.jsonl, .jsonl.gz, .kvtrace).")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The small trace. Default: TRACE.small.jsonl next to the trace."
        ),
    ] = None,
    profile: JudgedBy = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to shrink, after the first finding is known.")] = 60,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the name of the small trace.")] = False,
) -> None:
    """Shrink a trace that violates a rule: fewer sessions, turns, steps and pages, the same first violation.

    The result violates a rule at the same action, breaks the same invariants and is explained by the same fault. Names and
    pages get new numbers. Ctrl-C keeps the smallest so far. Exits with 0, or 2 if the trace conforms, 3 if it is incomplete.

    Example: [bold]kvproof shrink out/production.kvtrace --out out/small.jsonl[/bold]
    """
    require_profile(profile)
    place = out or trace.with_name(f"{trace.name.partition('.')[0]}.small.jsonl")
    require_ending(place)
    require_other_file(place, trace)
    require_writable_file(place)
    began, is_interrupted = time.monotonic(), False
    with Progress(f"shrinking {trace}") as progress:
        shrinker: TraceShrinker | None = None
        try:
            shrinker = TraceShrinker(trace, profile, seconds, ShrinkPace(progress))
            shrinker.run()
        except NothingToShrink as nothing:
            complain(nothing.message)
            incomplete = nothing.verdict == INCOMPLETE
            raise typer.Exit(ExitCode.INCONCLUSIVE if incomplete else ExitCode.COULD_NOT_RUN) from nothing
        except KeyboardInterrupt:
            is_interrupted = True
            if shrinker is None or shrinker.best is None:
                raise
    assert shrinker is not None and shrinker.best is not None
    shrinker.best.save(place)
    answer_with(**_for_machines(shrinker.best, trace, place))
    if quiet:
        print(place)
    else:
        _show(shrinker.best, trace, place, profile, time.monotonic() - began)
    if is_interrupted:
        complain(f"interrupted: {place} is the smallest so far")
        raise typer.Exit(ExitCode.INTERRUPTED)


def _for_machines(shrunk: Shrunk, trace: Path, place: Path) -> dict[str, Any]:
    return {
        "trace": str(trace),
        "out": str(place),
        "records_before": shrunk.records,
        "records": len(shrunk.events),
        "lives_before": shrunk.lives,
        "lives": shrunk.lives_left,
        "is_smallest": shrunk.is_smallest,
        "finding": finding_json(shrunk.finding),
    }


def _show(shrunk: Shrunk, trace: Path, place: Path, profile: str | None, seconds: float) -> None:
    finding = shrunk.finding
    named = ", ".join(fault.id for fault in finding.explained_by) or NO_FAULT
    say(
        f"{finding.action} breaks {', '.join(finding.invariants) or 'the order of events'}; explained by {named}",
        "bold",
    )
    say(f"  {trace}: {shrunk.records:,} records up to the finding, {shrunk.lives:,} sessions and requests")
    say(f"  {place}: {len(shrunk.events):,} records, {shrunk.lives_left:,} sessions and requests, {seconds:.1f} s")
    if not shrunk.is_smallest:
        say("  the time was up: --seconds may make it smaller still", "yellow")
    say(f"\n  see it: {replay_command(place, profile=profile)}", "dim")
