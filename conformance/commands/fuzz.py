"""`kvproof fuzz`: hostile schedules against a target, shrunk to a test that runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..errors import UserError, unknown
from ..exit_codes import ExitCode
from ..terminal import Progress, out, say
from .settings import parse_settings

if TYPE_CHECKING:
    from ..fuzz.campaign import Campaign

INSTALL = "pip install 'kvproof[fuzz]'"


def fuzz(
    target: Annotated[str, typer.Option(help="What to fuzz: reference, or module:factory of your own.")] = "reference",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to search; shrinking what is found comes on top.")
    ] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search: the same seed tries the same schedules.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="Turn a known fault on (reference only, repeatable): see `kvproof list faults`."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Keep a setting of the target at one value.")
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
        str, typer.Option(help="Who judges: auto, compiled, interpreted. Auto: compiled, if installed, from 20 s on.")
    ] = "auto",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only what was found.")] = False,
) -> None:
    """Search for a schedule that a target does not survive: sessions, aborts, retracts, closes, in every order and phase.

    Every event is judged by the model, every page counted after every step, and in the end all must come back. What is found
    is shrunk, and left with its trace and a test that fails. Exits with 0 if nothing was found, 1 if something was.

    Example: [bold]kvproof fuzz --seconds 60 --fault F22862b --out out/fuzz[/bold]

    Example: [bold]kvproof fuzz --replay out/fuzz/1[/bold]
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise UserError(f"fuzzing needs hypothesis: {INSTALL}") from error
    if replay is not None:
        raise typer.Exit(_play_again(replay))

    from ..fuzz.campaign import run_campaign
    from ..fuzz.leave import leave, leave_summary, require_writable
    from ..fuzz.target import target_named
    from ..replay import CHECKERS

    chosen = target_named(target)
    pinned = parse_settings(settings or [])
    for name in pinned:
        if name not in chosen.settings:
            raise unknown(f"setting of {target}", name, chosen.settings)
    if checker not in CHECKERS:
        raise unknown("checker", checker, CHECKERS)
    require_writable(folder)
    chosen.start(pinned, tuple(fault or ()), lambda _: None)  # what cannot start is said now
    with Progress(f"fuzzing {target}", quiet=quiet) as progress:
        campaign = run_campaign(
            chosen,
            seconds=seconds,
            checker=checker,
            seed=seed,
            faults=tuple(fault or ()),
            pinned=pinned,
            is_enough=lambda c: most is not None and len(c.found) >= most,
            progress=lambda c: progress.show(f"{c.schedules} schedules, {c.steps} steps, {len(c.found)} found"),
            found=lambda found: leave(found, folder),
        )
    leave_summary(campaign, folder)
    _show(campaign, folder, quiet)
    if not campaign.schedules:
        raise UserError("no schedule was played: nothing was checked")
    raise typer.Exit(ExitCode.VIOLATION if campaign.found else ExitCode.PASS)


def _show(campaign: Campaign, folder: Path, quiet: bool) -> None:
    if not quiet:
        coverage = campaign.coverage
        say(
            f"{campaign.schedules:,} schedules, {campaign.steps:,} steps, {campaign.events:,} events "
            f"in {campaign.elapsed:.0f} s, seed {campaign.seed}"
        )
        say(
            f"  exercised {len(coverage.actions)} actions, {len(coverage.branches)} branches of guards, "
            f"{len(coverage.invariants)} invariants",
            "dim",
        )
    for found in campaign.found.values():
        named = ", ".join(found.trouble.faults) or "new"
        line = Text(f"{found.number}  ", "bold red") + Text(f"{found.trouble.signature}")
        out().print(line, soft_wrap=True)
        say(
            f"   {named}; {len(found.schedule.acts)} acts; first after {found.after_seconds:.1f} s and "
            f"{found.after_schedules} schedules, {found.times} times"
        )
        say(f"   see it: {folder / str(found.number) / 'report.txt'}")
        say(f"   again:  kvproof fuzz --replay {shlex.quote(str(folder / str(found.number)))}")
    if not campaign.found:
        say("nothing found", "bold green")


def _play_again(place: Path) -> ExitCode:
    from ..fuzz.leave import replay_finding, report_lines

    played = replay_finding(place)
    if played.trouble is None:
        say(f"nothing wrong any more: {len(played.events)} events, {played.steps} steps", "bold green")
        return ExitCode.PASS
    for line in report_lines(played.trouble, played):
        say(line)
    return ExitCode.VIOLATION
