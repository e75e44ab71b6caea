"""`kvproof fuzz`: hostile schedules against a target, shrunk to a test that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import FuzzTarget, JUnitFile, NdjsonFile, RayAddress, SarifFile
from kvproof.conformance.cli.commands.settings import parse_settings
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.terminal import Progress, note, out, say

if TYPE_CHECKING:
    from kvproof.conformance.fuzz.campaign_jobs import How, Whole
    from kvproof.conformance.fuzz.campaign_state import Plan
    from kvproof.conformance.fuzz.target import Target

INSTALL = "pip install 'kvproof[fuzz]'"


def fuzz(
    context: typer.Context,
    target: FuzzTarget = "reference",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to search; shrinking what is found comes on top.")
    ] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search: the same seed tries the same schedules.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="Turn a known fault on (reference only, repeatable): see `kvproof list faults`.",
            autocompletion=completions.faults,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Keep a setting of the target at one value.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Judge by these rules: see `kvproof list profiles`, or `auto`, the target's own.",
            autocompletion=completions.profiles_and_auto,
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where findings go, each into a folder of its own.")
    ] = Path("out/fuzz"),
    replay: Annotated[
        Path | None,
        typer.Option(metavar="DIR/N", help="Play the schedule of a finding once more, instead of searching."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--stop-after", min=1, metavar="N", help="Stop once so many kinds of trouble are found."),
    ] = None,
    checker: Annotated[
        str,
        typer.Option(
            metavar="auto|compiled|interpreted",
            help="Who judges: the rules as they are, or compiled (kvproof\\[scale]). auto: compiled from 20 s on.",
            autocompletion=completions.CHECKERS,
        ),
    ] = "auto",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Searches at a time, by processes; 0: one a core.")
    ] = 1,
    ray: RayAddress = None,
    isolate: Annotated[
        bool | None,
        typer.Option(
            "--isolate/--no-isolate",
            help="Play in a process of its own: a target that exits or hangs in C is a finding. Default: all but the reference.",
        ),
    ] = None,
    step_seconds: Annotated[
        float, typer.Option("--step-seconds", min=0.01, metavar="S", help="What one step of the target may take.")
    ] = 10.0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the campaign in --out, which knows its target, seed and settings."),
    ] = False,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only what was found.")] = False,
) -> None:
    """Search for a schedule that a target does not survive, and leave it as a test that fails.

    Sessions, aborts, retracts, closes, in every order and phase. Every event is judged by the model, every page counted after
    every step, and in the end all must come back. What is found is shrunk. Exits with 0 if nothing was found, 1 if something was.

    Example: [bold]kvproof fuzz --seconds 60 --fault F22862b --out out/fuzz[/bold]

    Example: [bold]kvproof fuzz --replay out/fuzz/1[/bold]
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise UserError(f"fuzzing needs hypothesis: {INSTALL}") from error
    if replay is not None:
        if junit or sarif or ndjson:
            raise UserError("--junit, --sarif and --ndjson tell of a search: leave them out, or --replay")
        raise typer.Exit(_play_again(replay, _given(context, "target", target), isolate, step_seconds))

    from kvproof.conformance.cli.progress_bar import FuzzPace
    from kvproof.conformance.fuzz.campaign_jobs import How, Whole
    from kvproof.conformance.fuzz.campaign_state import STATE, Plan, State, load_state
    from kvproof.conformance.fuzz.finding_folder import leave_summary, require_writable
    from kvproof.conformance.fuzz.target import target_named, target_of_file, to_go_on
    from kvproof.conformance.replay.many_traces import cores
    from kvproof.conformance.replay.replay import CHECKERS
    from kvproof.conformance.replay.rules_of_trace import require_profile
    from kvproof.conformance.report.formats.of_campaign import events_of_campaign
    from kvproof.conformance.report.formats.stream import Formats, telling

    if ray is not None and jobs == 0:
        raise UserError("--jobs 0 is for the cores of this machine: say how many jobs Ray is given")
    require_profile(profile)
    if resume:
        state = load_state(folder)
        _refuse_what_is_chosen(context, folder)
        chosen = target_of_file(folder / STATE, state.plan.target, _given(context, "target", target))
    else:
        state = State(Plan(target, seed, tuple(fault or ()), parse_settings(settings or []), profile))
        chosen = target_named(target)
    plan = state.plan = state.plan.for_target(chosen)
    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    require_writable(folder)
    jobs = jobs or cores()
    isolates = isolate if isolate is not None else jobs > 1 or ray is not None or plan.target != "reference"
    how = How(seconds, jobs, isolates, step_seconds, most, checker)
    with telling(context, Formats(junit, sarif, ndjson)) as stream:
        _require_start(chosen, plan, how)
        with Progress(f"fuzzing {plan.target}", quiet=quiet) as progress:
            whole = Whole(chosen, state, how, folder, FuzzPace(progress, seconds))
            is_interrupted = _search(whole, ray)
        leave_summary(whole, folder)
        stream.tell(*events_of_campaign(whole.total, plan.target, folder))
        _show(whole, folder, quiet)
        if is_interrupted:
            say(f"interrupted; go on: {to_go_on(plan.target, folder)}", "yellow")
            raise typer.Exit(ExitCode.INTERRUPTED)
        if not whole.total.schedules:
            raise UserError("no schedule was played: nothing was checked")
        raise typer.Exit(ExitCode.VIOLATION if whole.total.found else ExitCode.PASS)


def _refuse_what_is_chosen(context: typer.Context, folder: Path) -> None:
    """What a campaign is about was said when it began."""
    for option in ("seed", "fault", "settings", "profile"):
        if _is_given(context, option):
            name = "set" if option == "settings" else option
            raise UserError(
                f"--{name} with --resume: the campaign in {folder} has its own; leave --{name} or --resume out"
            )


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _given(context: typer.Context, option: str, value: str) -> str | None:
    """What the user said, and not what holds where nothing is said."""
    return value if _is_given(context, option) else None


def _require_start(target: Target, plan: Plan, how: How) -> None:
    """What cannot start is said now. Raises UserError."""
    from kvproof.conformance.fuzz.campaign_jobs import player_of
    from kvproof.conformance.fuzz.schedule import Schedule

    player = player_of(target, how)
    try:
        player.play(Schedule(target=plan.target, faults=plan.faults, settings=plan.settings))
    finally:
        player.close()


def _search(whole: Whole, ray: str | None) -> bool:
    """Until the time is up; True if somebody ended it before."""
    from kvproof.conformance.fuzz.jobs import search_by_processes, search_here

    try:
        if ray is not None:
            from kvproof.conformance.fuzz.jobs_by_ray import search_by_ray

            search_by_ray(whole, ray)
        elif whole.how.jobs > 1:
            search_by_processes(whole)
        else:
            search_here(whole)
    except KeyboardInterrupt:
        return True
    finally:
        whole.end()
    return False


def _show(whole: Whole, folder: Path, quiet: bool) -> None:
    from kvproof.conformance.fuzz.target import to_play_again

    campaign = whole.total
    if not quiet:
        coverage = campaign.coverage
        by = f" by {whole.how.jobs} jobs" if whole.how.jobs > 1 else ""
        say(
            f"{campaign.schedules:,} schedules, {campaign.steps:,} steps, {campaign.events:,} events "
            f"in {campaign.elapsed:.0f} s{by}, {campaign.steps / max(campaign.elapsed, 0.1):,.0f} steps/s, seed {campaign.seed}"
        )
        say(
            f"  exercised {len(coverage.actions)} actions, {len(coverage.branches)} branches of guards, "
            f"{len(coverage.invariants)} invariants, {campaign.states} abstract states",
            "dim",
        )
        say(f"  summary: {folder / 'summary.html'}", "dim")
    if whole.died:
        note(f"{whole.died} jobs died and were begun again; what they did last is lost")
    for found in campaign.found.values():
        after = f"after {', '.join(found.trouble.after)}" if found.trouble.after else "new"
        named = ", ".join(found.trouble.faults) or after
        line = Text(f"{found.number}  ", "bold red") + Text(f"{found.trouble.signature}")
        out().print(line, soft_wrap=True)
        say(
            f"   {named}; {len(found.schedule.acts)} acts; first after {found.after_seconds:.1f} s and "
            f"{found.after_schedules} schedules, {found.times} times"
        )
        say(f"   see it: {folder / str(found.number) / 'report.txt'}")
        say(f"   again:  {to_play_again(whole.plan.target, folder / str(found.number))}")
    if not campaign.found:
        say("nothing found", "bold green")


def _play_again(place: Path, chosen: str | None, isolate: bool | None, step_seconds: float) -> ExitCode:
    from kvproof.conformance.fuzz.finding_folder import replay_finding, report_lines

    played = replay_finding(place, chosen=chosen, isolates=isolate, step_seconds=step_seconds)
    if played.trouble is None:
        say(f"nothing wrong any more: {len(played.events)} events, {played.steps} steps", "bold green")
        return ExitCode.PASS
    for line in report_lines(played.trouble, played):
        say(line)
    return ExitCode.VIOLATION
