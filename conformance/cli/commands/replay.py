"""`kvproof replay`: check traces against the specification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as but
from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli.commands.options import (
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
from kvproof.conformance.cores import cores
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.printable import for_terminal
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.many_traces import (
    CouldNotJudge,
    Judged,
    Options,
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
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Report
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.of_replay import events_of_replay
from kvproof.conformance.report.formats.stream import Formats, telling
from kvproof.conformance.report.show_replay import (
    as_json,
    checked,
    exercised_lines,
    reason_lines,
    replay_command,
    verdict_line,
    verdict_lines,
    weaker,
    weaker_lines,
)
from kvproof.conformance.report.terminal import Progress, complain, say, say_lines
from kvproof.conformance.traces.slices import Slice
from kvproof.conformance.whole_file import require_writable_file

Traces = Annotated[
    list[Path],
    typer.Argument(metavar="TRACE...", help="Traces (.jsonl, .jsonl.gz, .kvtrace), folders of them, or patterns."),
]
CheckerName = Annotated[
    str,
    checker_option("The rules interpreted, or compiled (kvproof\\[scale]). auto: compiled if the trace is large."),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=0, help="Number of processes; 0: one for each core.")]
First = Annotated[int, typer.Option("--from", metavar="SEQ", min=0, help="Show findings from this event on.")]
Last = Annotated[
    int | None,
    typer.Option("--to", metavar="SEQ", min=0, help="Check up to this event; no verdict on the whole trace."),
]
Session = Annotated[str | None, typer.Option(help="Also show the events of this session.")]
Page = Annotated[int | None, typer.Option(help="Also show the events that moved this page, and those of its holders.")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="Save the state to this file, regularly and at the end."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the state in --checkpoint.")]
EveryBranch = Annotated[bool, typer.Option("--coverage", help="List how often each branch of a guard was taken.")]
RequiredCoverage = Annotated[
    str | None,
    typer.Option(
        "--require-coverage",
        metavar="KIND=NAME,...;...",
        help="Exit with 2 if a pass did not check these: actions=, guards=, invariants=, fields=.",
    ),
]

NOT_JUDGED = "could not be judged"


def replay(
    context: typer.Context,
    traces: Traces,
    strict: Strict = False,
    profile: JudgedBy = None,
    checker: CheckerName = "auto",
    jobs: Jobs = 1,
    ray: RayAddress = None,
    first: First = 0,
    last: Last = None,
    session: Session = None,
    page: Page = None,
    checkpoint: CheckpointFile = None,
    resume: Resume = False,
    coverage: EveryBranch = False,
    required: RequiredCoverage = None,
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
    if checkpoint is not None:
        require_writable_file(checkpoint)

    with telling(context, Formats(junit, sarif, ndjson)) as stream:
        if len(paths) == 1 and ray is None:
            answers: list[Judged] = [_judge_one(paths[0], checker, options, checkpoint, resume)]
        else:
            answers = _judge_all(paths, checker, options, jobs, ray)
        stream.tell(*events_of_replay(answers))
        if quiet:
            _print_a_line_each(answers)
        else:
            _show(answers, options, first, coverage)
            if session is not None or page is not None:
                _show_timelines(reports_in(answers), Slice(first=first, last=last, session=session, page=page))
        answer_with(verdict=_worst(answers), traces=[_for_machines(answer) for answer in answers])
        raise typer.Exit(_exit_code(answers, needed))


def _worst(answers: Sequence[Judged]) -> str | None:
    verdicts = {report.verdict for report in reports_in(answers)}
    return next((verdict for verdict in (VIOLATES, INCOMPLETE, CONFORMS) if verdict in verdicts), None)


def _for_machines(answer: Judged) -> dict[str, Any]:
    if isinstance(answer, CouldNotJudge):
        return {"path": str(answer.path), "verdict": NOT_JUDGED, "why": answer.message}
    return as_json(answer)


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
        raise UserError("--resume continues from a checkpoint: name it with --checkpoint FILE")
    if checkpoint is not None and (len(paths) > 1 or ray is not None):
        raise UserError(f"--checkpoint is of one trace, replayed here; {len(paths)} were given")
    if ray is not None and jobs != 1:
        raise UserError("--jobs is for processes of this machine, and Ray has its own: give one of the two")


def _judge_one(path: Path, checker: str, options: Options, checkpoint: Path | None, resume: bool) -> Report:
    with Progress(f"replaying {path}") as progress:
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


def _judge_all(paths: Sequence[Path], checker: str, options: Options, jobs: int, ray: str | None) -> list[Judged]:
    with Progress(f"replaying {len(paths)} traces") as progress:
        pace = ReplayPace(progress)
        if ray is not None:
            return judge_by_ray(paths, options, ray, pace.of_many)
        if jobs != 1:
            return judge_by_processes(paths, options, jobs or cores(), pace.of_many)
        by = Chosen(checker, progress.show_at_once)
        return judge_in_turn(paths, but(options, checker=by), pace.of_many)


def _print_a_line_each(answers: Sequence[Judged]) -> None:
    for answer in answers:
        if isinstance(answer, CouldNotJudge):
            complain(answer.message)
        else:
            print(_one_line(answer))  # not by rich, which turns tabs into spaces


def _one_line(report: Report) -> str:
    names = sorted({f.id for finding in report.findings for f in finding.explained_by})
    weak = "".join(f"; {line}" for line in weaker(report.allowed, report.gaps))
    by = f", by the rules of {report.profile}" if report.profile is not None else ""
    return for_terminal(
        f"{report.verdict}\t{report.path}\t{checked(report)}{by}{weak}" + (f"\t{' '.join(names)}" if names else "")
    )


def _show(answers: Sequence[Judged], options: Options, first: int, coverage: bool) -> None:
    reports = reports_in(answers)
    if len(answers) == 1 and reports:
        say_lines(verdict_lines(reports[0], first_event=first, coverage=coverage))
    else:
        _show_many(answers, first, coverage)
    if wrong := [report.path for report in reports if report.verdict == VIOLATES]:
        say(f"\n  again: {replay_command(*wrong, strict=options.strict, profile=options.profile)}", "dim")


def _show_many(answers: Sequence[Judged], first: int, coverage: bool) -> None:
    """One line for each trace, the reasons of those that do not conform, then all of them together."""
    for answer in answers:
        if isinstance(answer, CouldNotJudge):
            complain(answer.message)
        else:
            say_lines([verdict_line(answer).append(f"  {checked(answer)}", "dim")])
            say_lines(weaker_lines(answer))
            say_lines(reason_lines(answer, first_event=first))
    reports = reports_in(answers)
    counts = Counter(report.verdict for report in reports)
    counts[NOT_JUDGED] = len(answers) - len(reports)
    say(f"\n{len(answers)} traces: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    say(f"  {sum(r.events for r in reports)} events, {sum(r.pages_moved for r in reports)} page moves", "dim")
    say_lines(exercised_lines(coverage_of(answers), [report.profile for report in reports], every=coverage))


def _show_timelines(reports: Sequence[Report], wanted: Slice) -> None:
    """The events of a session or around a page. The verdict before them is of all events."""
    named = (("session", wanted.session), ("page", wanted.page))
    what = " and ".join(f"{kind} {name}" for kind, name in named if name is not None)
    for report in reports:
        if not report.events:
            continue
        last = report.events - 1 if wanted.last is None else min(wanted.last, report.events - 1)
        say(f"\n{report.path}: events of {what}", "bold")
        shown = 0
        for line in timeline(report.path, wanted.model_copy(update={"last": last})):
            say(f"  {line}")
            shown += 1
        if not shown:
            say("  none was judged", "yellow")
