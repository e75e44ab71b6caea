"""`kvproof watch`: check a trace while it is written."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli.commands.options import JudgedBy, Strict, checker_option
from kvproof.conformance.compiled.choose import CHECKERS
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.replay import INCOMPLETE, VIOLATES
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.show_replay import replay_command, verdict_lines
from kvproof.conformance.report.show_watch import LiveView, PlainLog, as_json
from kvproof.conformance.report.terminal import out, say, say_lines
from kvproof.conformance.watch.alarm import Alarm
from kvproof.conformance.watch.metrics import Metrics
from kvproof.conformance.watch.watch import Options, Outcome, Watch

GrowingTrace = Annotated[
    Path, typer.Argument(metavar="TRACE", help="The trace, .jsonl or .kvtrace; it need not exist yet.")
]
CheckerName = Annotated[
    str,
    checker_option("auto: compiled (kvproof\\[scale]) once the writer is faster than the interpreted rules."),
]
UntilEnd = Annotated[
    bool, typer.Option("--until-end", help="Stop at the first end record, even that of an idle server.")
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Continue after a violation: count events and pages, check nothing more.")
]
AlarmCommand = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Run this for each violation, with the finding as JSON on stdin. No shell."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(help="Serve metrics for Prometheus (kvproof\\[watch]); 0: on any free port.", min=0, max=65535),
]
NoView = Annotated[bool, typer.Option("--no-view", help="Plain lines, for logs; the default if stdout is no terminal.")]


def watch(
    trace: GrowingTrace,
    strict: Strict = False,
    profile: JudgedBy = None,
    checker: CheckerName = "auto",
    once: Annotated[bool, typer.Option("--once", help="Check what exists now, and stop.")] = False,
    until_end: UntilEnd = False,
    keep_going: KeepGoing = False,
    alarm: AlarmCommand = None,
    alarm_seconds: Annotated[float, typer.Option(help="Time limit of one alarm.", min=0.1)] = 30.0,
    metrics_port: MetricsPort = None,
    metrics_host: Annotated[str, typer.Option(help="Address for the metrics.")] = "127.0.0.1",
    no_view: NoView = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only violations and the verdict.")] = False,
) -> None:
    """Check a trace while it is written; show pools, sessions, rates and the verdict; report violations at once.

    Ends with the trace, at a violation, or with Ctrl-C. Exits with 0 if it conforms, 1 if it violates a rule, 3 if it is
    incomplete, 2 if nothing was checked, 130 if you interrupted it.

    Example: [bold]kvproof watch out/live.jsonl --metrics-port 9464 --alarm './page-me.sh'[/bold]
    """
    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    require_profile(profile)
    options = Options(
        strict=strict, checker=checker, once=once, until_end=until_end, keep_going=keep_going, profile=profile
    )
    with ExitStack() as stack:
        show: LiveView | PlainLog = PlainLog(quiet=quiet) if quiet or no_view or not out().is_terminal else LiveView()
        stack.enter_context(show)
        rung = None
        if alarm is not None:
            rung = Alarm(alarm, show.say, alarm_seconds)
            stack.callback(rung.close)
        run = Watch(trace, options, show, (lambda _: None) if rung is None else rung.ring)
        if metrics_port is not None:
            metrics = Metrics(metrics_host, metrics_port, lambda: run.latest)
            stack.callback(metrics.close)
            show.say(f"metrics: http://{metrics_host}:{metrics.port}/metrics")
        outcome = run.run()
    answer_with(**as_json(outcome))
    _show(outcome, trace, strict)
    raise typer.Exit(_exit_code(outcome, trace))


def _show(outcome: Outcome, trace: Path, strict: bool) -> None:
    report = outcome.report
    if report is not None:
        say_lines(verdict_lines(dataclasses.replace(report, findings=[])))  # each violation was shown when it came
    if outcome.unjudged:
        say(f"  {outcome.unjudged} events came after the violation: counted, not judged", "yellow")
    if outcome.restarts:
        say(f"  the trace was begun anew {outcome.restarts} times; {outcome.violations} violations in all", "yellow")
    if outcome.interrupted:
        say(f"  interrupted after {outcome.events} events", "yellow")
    elif outcome.verdict == VIOLATES:
        profile = report.profile if report is not None else None
        say(f"\n  again: {replay_command(trace, strict=strict, profile=profile)}", "dim")


def _exit_code(outcome: Outcome, trace: Path) -> ExitCode:
    """Raises UserError where nothing was checked."""
    if outcome.interrupted:
        return ExitCode.INTERRUPTED
    if outcome.verdict == VIOLATES:
        return ExitCode.VIOLATION
    if outcome.report is None:
        raise UserError(f"{trace}: no trace is there")
    if outcome.verdict == INCOMPLETE:
        return ExitCode.INCONCLUSIVE
    if outcome.events == 0:
        raise UserError(f"nothing was checked: no events in {trace}")
    return ExitCode.PASS
