"""`kvproof replay`: traces against the specification."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace as but
from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli.commands.options import (
    JsonFile,
    JudgedBy,
    JUnitFile,
    NdjsonFile,
    RayAddress,
    SarifFile,
    Strict,
    checker_option,
)
from kvproof.conformance.cli.progress_bar import ReplayPace
from kvproof.conformance.compiled.choose import CHECKERS, Chosen
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.printable import for_terminal
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.many_traces import (
    CouldNotJudge,
    Judged,
    Options,
    cores,
    coverage_of,
    exit_code,
    judge_by_processes,
    judge_in_turn,
    reports_in,
    traces_in,
)
from kvproof.conformance.replay.many_traces_by_ray import judge_by_ray
from kvproof.conformance.replay.replay import replay as run_replay
from kvproof.conformance.replay.required_coverage import Required
from kvproof.conformance.replay.rules_of_trace import may_judge_by, require_profile, rules_of
from kvproof.conformance.replay.timeline import timeline
from kvproof.conformance.replay.verdict import VIOLATES, Report
from kvproof.conformance.report.formats.of_replay import events_of_replay
from kvproof.conformance.report.formats.stream import Formats, telling
from kvproof.conformance.report.show_coverage import coverage_lines
from kvproof.conformance.report.show_replay import as_json, checked, reason_lines, verdict_line, verdict_lines
from kvproof.conformance.report.terminal import Progress, complain, out, say, write_json
from kvproof.conformance.traces.slices import Slice


def replay(
    context: typer.Context,
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Traces (.jsonl, .jsonl.gz, .kvtrace), folders of them, or patterns."),
    ],
    strict: Strict = False,
    profile: JudgedBy = None,
    checker: Annotated[
        str,
        checker_option(
            "Who judges: the rules as they are, or compiled (kvproof\\[scale]). auto: compiled if the trace is large."
        ),
    ] = "auto",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Traces at a time, by processes; 0: one a core.")
    ] = 1,
    ray: RayAddress = None,
    first: Annotated[int, typer.Option("--from", metavar="SEQ", min=0, help="Show findings from this event on.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", metavar="SEQ", min=0, help="Judge up to this event: no verdict of the whole.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Show the events of this session, too.")] = None,
    page: Annotated[
        int | None, typer.Option(help="Show the events that moved this page, and those of who held it, too.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="FILE", help="Save the state there at times and at the end.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the state that --checkpoint holds.")] = False,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="List how often each branch of a guard was taken.")
    ] = False,
    required: Annotated[
        str | None,
        typer.Option(
            "--require-coverage",
            metavar="KIND=NAME,...;...",
            help="What a pass must have exercised: actions=, guards=, invariants=. Else the exit code is 2.",
        ),
    ] = None,
    json_file: JsonFile = None,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="One line for each trace.")] = False,
) -> None:
    """Check traces event by event and page by page; show the first bad event and the fault that explains it.

    Exits with 0 if all conform, 1 if one violates a rule, 3 if one is incomplete, 2 if nothing was checked.

    Example: [bold]kvproof replay out/retract.jsonl[/bold]

    Example: [bold]kvproof replay out/real.jsonl --profile sglang-0.5.23[/bold]

    Example: [bold]kvproof replay traces/ --jobs 8 --require-coverage 'actions=retract,abort;invariants=I9'[/bold]
    """
    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    if last is not None and first > last:
        raise UserError(f"--from {first} --to {last}: the first event stands after the last")
    require_profile(profile)
    needed = Required.parsed(required, may_judge_by(profile)) if required is not None else Required()
    paths, options = traces_in(traces), Options(strict, Chosen(checker), last, profile)
    _refuse_what_needs_one_trace(paths, checkpoint, resume, jobs, ray)

    with telling(context, Formats(junit, sarif, ndjson)) as stream:
        if len(paths) == 1 and ray is None:
            answers: list[Judged] = [_judge_one(paths[0], checker, options, checkpoint, resume, quiet)]
            _show_one(answers[0], options, first, coverage, quiet)
        else:
            answers = _judge_all(paths, checker, options, jobs, ray, quiet)
            _show_all(answers, options, first, coverage, quiet)
        stream.tell(*events_of_replay(answers))
        if session is not None or page is not None:
            _show_timelines(answers, first, last, session, page, quiet)
        if json_file is not None:
            write_json(json_file, [as_json(report) for report in reports_in(answers)])
        raise typer.Exit(_exit_code(answers, needed))


def _exit_code(answers: Sequence[Judged], needed: Required) -> ExitCode:
    """Raises UserError where what was needed for a pass was not covered."""
    code = exit_code(answers)
    empty = [str(report.path) for report in reports_in(answers) if report.events == 0]
    if empty and code == ExitCode.COULD_NOT_RUN:
        complain(f"nothing was checked: no events in {', '.join(empty)}")
    judged_by = {report.profile for report in reports_in(answers)} or {None}
    missing = needed.missing_in(coverage_of(answers), map(rules_of, judged_by))
    if missing and code in (ExitCode.PASS, ExitCode.INCONCLUSIVE):
        raise UserError(f"not covered, so this is no pass: {', '.join(missing)}")
    return code


def _refuse_what_needs_one_trace(
    paths: Sequence[Path], checkpoint: Path | None, resume: bool, jobs: int, ray: str | None
) -> None:
    if resume and checkpoint is None:
        raise UserError("--resume goes on from a checkpoint: name it with --checkpoint FILE")
    if checkpoint is not None and (len(paths) > 1 or ray is not None):
        raise UserError(f"--checkpoint is of one trace, replayed here; {len(paths)} were given")
    if ray is not None and jobs != 1:
        raise UserError("--jobs is for processes of this machine; Ray has its own: give one of the two")


def _judge_one(
    path: Path, checker: str, options: Options, checkpoint: Path | None, resume: bool, quiet: bool
) -> Report:
    with Progress(f"replaying {path}", quiet=quiet) as progress:
        return run_replay(
            path,
            strict=options.strict,
            profile=options.profile,
            checker=Chosen(checker, progress.show_at_once),
            until=options.until,
            progress=ReplayPace(progress),
            checkpoints=None if checkpoint is None else Checkpoints(checkpoint),
            resume=resume,
        )


def _judge_all(
    paths: Sequence[Path], checker: str, options: Options, jobs: int, ray: str | None, quiet: bool
) -> list[Judged]:
    with Progress(f"replaying {len(paths)} traces", quiet=quiet) as progress:
        pace = ReplayPace(progress)
        if ray is not None:
            return judge_by_ray(paths, options, ray, pace.of_many)
        if jobs != 1:
            return judge_by_processes(paths, options, jobs or cores(), pace.of_many)
        by = Chosen(checker, progress.show_at_once)
        return judge_in_turn(paths, but(options, checker=by), pace.of_many)


def _show_one(answer: Judged, options: Options, first: int, coverage: bool, quiet: bool) -> None:
    assert isinstance(answer, Report)
    if quiet:
        print(_one_line(answer))  # not by rich, which turns tabs into spaces
        return
    for line in verdict_lines(answer, first_event=first, coverage=coverage):
        out().print(line, soft_wrap=True)
    if answer.verdict == VIOLATES:
        _say_again([answer.path], options)


def _show_all(answers: Sequence[Judged], options: Options, first: int, coverage: bool, quiet: bool) -> None:
    """One line for each trace, the reasons of those that do not conform, then all of them together."""
    for answer in answers:
        if isinstance(answer, CouldNotJudge):
            complain(answer.message)
        elif quiet:
            print(_one_line(answer))
        else:
            out().print(verdict_line(answer).append(f"  {checked(answer)}", "dim"), soft_wrap=True)
            for line in reason_lines(answer, first_event=first):
                out().print(line, soft_wrap=True)
    if quiet:
        return
    reports = reports_in(answers)
    counts = {
        verdict: sum(r.verdict == verdict for r in reports) for verdict in dict.fromkeys(r.verdict for r in reports)
    }
    if failed := len(answers) - len(reports):
        counts["could not be judged"] = failed
    say(f"\n{len(answers)} traces: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    say(f"  {sum(r.events for r in reports)} events, {sum(r.pages_moved for r in reports)} page moves", "dim")
    for line in coverage_lines(coverage_of(answers), [report.profile for report in reports], every=coverage):
        out().print(line, soft_wrap=True)
    _say_again([report.path for report in reports if report.verdict == VIOLATES], options)


def _one_line(report: Report) -> str:
    names = sorted({f.id for finding in report.findings for f in finding.explained_by})
    by = f", by the rules of {report.profile}" if report.profile is not None else ""
    return for_terminal(
        f"{report.verdict}\t{report.path}\t{checked(report)}{by}" + (f"\t{' '.join(names)}" if names else "")
    )


def _say_again(paths: Sequence[Path], options: Options) -> None:
    if paths:
        strict = " --strict" if options.strict else ""
        by = f" --profile {options.profile}" if options.profile is not None else ""
        say(f"\n  again: kvproof replay {shlex.join(map(str, paths))}{strict}{by}", "dim")


def _show_timelines(
    answers: Sequence[Judged], first: int, last: int | None, session: str | None, page: int | None, quiet: bool
) -> None:
    """Beside the verdict, which is of all events, those of a session or around a page."""
    what = " and ".join([f"session {session}"] * (session is not None) + [f"page {page}"] * (page is not None))
    for report in reports_in(answers):
        if quiet or not report.events:
            continue
        judged_last = report.events - 1 if last is None else min(last, report.events - 1)
        say(f"\n{report.path}: events of {what}", "bold")
        shown = 0
        if first <= judged_last:
            for line in timeline(report.path, Slice(first=first, last=judged_last, session=session, page=page)):
                say(f"  {line}")
                shown += 1
        if not shown:
            say("  none was judged", "yellow")
