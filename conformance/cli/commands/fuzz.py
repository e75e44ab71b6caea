"""`kvproof fuzz`: hostile schedules against a target; each finding is shrunk to a test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import (
    FaultsTurnedOn,
    FuzzTarget,
    JUnitFile,
    NdjsonFile,
    RayAddress,
    SarifFile,
    checker_option,
    parse_settings,
)
from kvproof.conformance.compiled.choose import CHECKERS
from kvproof.conformance.cores import cores
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.targets import target_named, target_of_file
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.report.formats.stream import Formats, given
from kvproof.conformance.report.needs import INSTALL, is_missing

Seconds = Annotated[float, typer.Option(min=0.1, help="How long to search; shrinking the findings takes extra time.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the search: the same seed tries the same schedules.")]
KeptSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Keep a setting of the target at one value.")
]
JudgedBy = Annotated[
    str | None,
    typer.Option(
        help="Use the rules of a release: see `kvproof list profiles`, or `auto`, the target's own.",
        autocompletion=completions.profiles_and_auto,
    ),
]
FindingsFolder = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for findings, one folder for each.")
]
PlayedAgain = Annotated[
    Path | None, typer.Option(metavar="DIR/N", help="Play the schedule of a finding again, instead of searching.")
]
StopAfter = Annotated[
    int | None, typer.Option("--stop-after", min=1, metavar="N", help="Stop after this many kinds of findings.")
]
CheckerName = Annotated[
    str,
    checker_option("The rules interpreted, or compiled (kvproof\\[scale]). auto: compiled from 20 s on."),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=0, help="Number of searching processes; 0: one for each core.")]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Play in a separate process: a target that exits or hangs in C is a finding. Default: all but the reference.",
    ),
]
StepSeconds = Annotated[
    float, typer.Option("--step-seconds", min=0.01, metavar="S", help="Time limit of one step of the target.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the campaign in --out with its target, seed and settings."),
]


def fuzz(
    context: typer.Context,
    target: FuzzTarget = "reference",
    seconds: Seconds = 60,
    seed: Seed = 0,
    fault: FaultsTurnedOn = None,
    settings: KeptSettings = None,
    profile: JudgedBy = None,
    folder: FindingsFolder = Path("out/fuzz"),
    replay: PlayedAgain = None,
    most: StopAfter = None,
    checker: CheckerName = "auto",
    jobs: Jobs = 1,
    ray: RayAddress = None,
    isolate: Isolate = None,
    step_seconds: StepSeconds = 10.0,
    resume: Resume = False,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the findings.")] = False,
) -> None:
    """Search for a schedule that breaks a target, and write a test that fails.

    It tries sessions, aborts, retracts and closes in every order and phase. The model checks every event, every page is counted
    after every step, and at the end every page must be free. It shrinks each finding. Exits with 0 if nothing was found, 1 if
    something was.

    Example: [bold]kvproof fuzz --seconds 60 --fault F22862b --out out/fuzz[/bold]

    Example: [bold]kvproof fuzz --replay out/fuzz/1[/bold]
    """
    if is_missing("hypothesis"):
        raise UserError(f"fuzzing needs hypothesis: {INSTALL['hypothesis']}")
    from kvproof.conformance.cli.fuzzing import play_again, run_campaign
    from kvproof.conformance.fuzz.campaign_jobs import SearchOptions
    from kvproof.conformance.fuzz.campaign_state import STATE, Plan, State, load_state

    named = target if "target" in given(context) else None
    if replay is not None:
        if junit or sarif or ndjson:
            raise UserError("--junit, --sarif and --ndjson are for a search: leave them out, or leave out --replay")
        raise typer.Exit(play_again(replay, named, isolate, step_seconds))
    if ray is not None and jobs == 0:
        raise UserError("--jobs 0 is for the cores of this machine: give the number of jobs for Ray")
    require_profile(profile)
    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    if resume:
        state = load_state(folder)
        _refuse_what_is_chosen(context, folder)
        chosen = target_of_file(folder / STATE, state.plan.target, named)
    else:
        state = State(Plan(target, seed, tuple(fault or ()), parse_settings(settings or []), profile))
        chosen = target_named(target)
    state.plan = state.plan.for_target(chosen)
    jobs = jobs or cores()
    isolates = isolate if isolate is not None else jobs > 1 or ray is not None or state.plan.target != "reference"
    how = SearchOptions(seconds, jobs, isolates, step_seconds, most, checker)
    run_campaign(context, chosen, state, how, folder, Formats(junit, sarif, ndjson), ray=ray)


def _refuse_what_is_chosen(context: typer.Context, folder: Path) -> None:
    """What a campaign is about was said when it began."""
    for option in ("seed", "fault", "settings", "profile"):
        if option in given(context):
            name = "set" if option == "settings" else option
            raise UserError(
                f"--{name} with --resume: the campaign in {folder} has its own; leave --{name} or --resume out"
            )
