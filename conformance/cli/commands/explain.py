"""`kvproof explain`: what broke in a trace, as text or as a page; or what an invariant, a fault or an action is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import JudgedBy, Strict
from kvproof.conformance.cli.progress_bar import ReplayPace
from kvproof.conformance.compiled.choose import Chosen, is_large
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.many_traces import exit_code
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.replay.verdict import Report
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.explain.page import page_of
from kvproof.conformance.report.explain.story import Story, Subject, story_of
from kvproof.conformance.report.explain.text import report_lines
from kvproof.conformance.report.show_replay import as_json
from kvproof.conformance.report.terminal import Progress, complain, tell_lines
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.whole_file import require_writable_file, write_whole


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|FINDING|NAME",
            help="A trace or counterexample (.jsonl, .jsonl.gz, .kvtrace), a finding's folder of kvproof fuzz; "
            "or the name of an invariant, a fault or an action.",
            autocompletion=completions.rules,
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report as one HTML page that needs no network."),
    ] = None,
    events: Annotated[
        int,
        typer.Option(
            "--events", min=1, help="With --html: show at most this many events, the last ones before the verdict."
        ),
    ] = 200_000,
    strict: Strict = False,
    profile: JudgedBy = None,
) -> None:
    """Explain a violation: the event, the page and its two owners, the rule, the row before and after, the fault.

    For a trace, exits as replay does: 0 if it conforms, 1 if it violates a rule, 3 if it is incomplete, 2 if nothing was
    checked. For a name, exits with 0, or 2 if the name does not exist.

    Example: [bold]kvproof explain out/retract.jsonl --html out/retract.html[/bold]

    Example: [bold]kvproof explain I9[/bold]

    Example: [bold]kvproof explain F22862b[/bold]
    """
    place = Path(what)
    if not place.exists():
        from kvproof.conformance.report.explain.rule import is_name, rule_lines, unknown_subject  # needs z3

        if not is_name(what):
            raise unknown_subject(what)
        if html is not None or strict or profile is not None:
            raise UserError("--html, --strict and --profile are for traces: a rule is explained as text")
        with Progress(f"looking for the shortest run of {what}") as progress:
            lines = list(rule_lines(what, lambda: progress.show("searching")))
        answer_with(name=what, text=[line.plain for line in lines])
        tell_lines(lines)
        return
    require_profile(profile)
    raise typer.Exit(_explain_trace(place, html, events, strict, profile))


def _explain_trace(place: Path, html: Path | None, events: int, strict: bool, profile: str | None) -> ExitCode:
    subject = Subject.of(place, strict=strict, profile=profile)
    if html is None:
        report = _judged(subject)
        header = read_trace(subject.path).header
    else:
        if html.exists() and (html.is_dir() or html.samefile(subject.path)):
            raise UserError(f"{html}: is the trace, or a folder; give another name for the page")
        require_writable_file(html)
        story = _told(subject, events)
        report, header = story.report, story.header
        write_whole(html, [page_of(story, subject)])
    tell_lines(report_lines(subject, report, header, html))
    answer_with(**as_json(report))
    code = exit_code([report])
    if report.events == 0 and code == ExitCode.COULD_NOT_RUN:
        complain(f"nothing was checked: no events in {subject.path}")
    return code


def _judged(subject: Subject) -> Report:
    with Progress(f"replaying {subject.path}") as progress:
        checker = Chosen(waits=progress.show_at_once)
        return replay(
            subject.path, strict=subject.strict, profile=subject.profile, progress=ReplayPace(progress), checker=checker
        )


def _told(subject: Subject, events: int) -> Story:
    """The story of a trace. For a large trace the verdict comes first, because the story takes longer than the verdict."""
    since = _judged(subject).events - events if is_large(subject.path) else 0
    with Progress(f"telling {subject.path}") as progress:
        pace = ReplayPace(progress)
        story = story_of(subject, since=since, progress=pace)
        if len(story.events) > events:
            story = story_of(subject, since=story.report.events - events, progress=pace)
        return story
