"""A campaign as the command line runs it: searched, shown, and ended with its exit code. Needs the extra `fuzz`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from kvproof.conformance.cli.progress_bar import FuzzPace
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, leave_summary, player_of
from kvproof.conformance.fuzz.campaign_state import Plan, State
from kvproof.conformance.fuzz.finding_folder import replay_finding, report_lines, require_writable
from kvproof.conformance.fuzz.jobs import search_by_processes, search_here
from kvproof.conformance.fuzz.jobs_by_ray import search_by_ray
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.fuzz.targets import to_go_on, to_play_again
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.of_campaign import events_of_campaign
from kvproof.conformance.report.formats.stream import Formats, telling
from kvproof.conformance.report.terminal import Progress, note, say, say_lines, tell


def run_campaign(
    context: typer.Context,
    target: Target,
    state: State,
    how: SearchOptions,
    folder: Path,
    formats: Formats,
    *,
    ray: str | None,
) -> None:
    """Search until the time is up. Raises typer.Exit with the code, UserError for what cannot start."""
    plan = state.plan
    with telling(context, formats) as stream:
        _require_start(target, plan, how)
        require_writable(folder)
        with Progress(f"fuzzing {plan.target}") as progress:
            whole = CampaignJobs(target, state, how, folder, FuzzPace(progress, how.seconds))
            is_interrupted = _search(whole, ray)
        leave_summary(whole, folder)
        stream.tell(*events_of_campaign(whole.total, plan.target, folder))
        answer_with(**_for_machines(whole, folder))
        _show(whole, folder)
        if is_interrupted:
            say(f"interrupted; go on: {to_go_on(plan.target, folder)}", "yellow")
            raise typer.Exit(ExitCode.INTERRUPTED)
        if not whole.total.schedules:
            raise UserError("no schedule was played: nothing was checked")
        raise typer.Exit(ExitCode.VIOLATION if whole.total.found else ExitCode.PASS)


def _require_start(target: Target, plan: Plan, how: SearchOptions) -> None:
    """What cannot start is said now. Raises UserError."""
    player = player_of(target, how, note)
    try:
        player.play(Schedule(target=plan.target, faults=plan.faults, settings=plan.settings))
    finally:
        player.close()


def _search(whole: CampaignJobs, ray: str | None) -> bool:
    """Until the time is up; True if somebody ended it before."""
    try:
        if ray is not None:
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


def _for_machines(whole: CampaignJobs, folder: Path) -> dict[str, Any]:
    campaign = whole.total
    found = [
        {
            "number": one.number,
            "folder": str(folder / str(one.number)),
            "kind": one.trouble.kind,
            "signature": one.trouble.signature,
            "sentence": one.trouble.sentence,
            "faults": list(one.trouble.faults),
            "times": one.times,
            "acts": len(one.schedule.acts),
        }
        for one in campaign.found.values()
    ]
    return {
        "verdict": "found" if found else "nothing found",
        **asdict(whole.plan),
        "schedules": campaign.schedules,
        "steps": campaign.steps,
        "events": campaign.events,
        "seconds": round(campaign.elapsed, 3),
        "found": found,
    }


def _show(whole: CampaignJobs, folder: Path) -> None:
    campaign = whole.total
    coverage = campaign.coverage
    by = f" by {whole.how.jobs} jobs" if whole.how.jobs > 1 else ""
    tell(
        f"{campaign.schedules:,} schedules, {campaign.steps:,} steps, {campaign.events:,} events "
        f"in {campaign.elapsed:.0f} s{by}, {campaign.steps / max(campaign.elapsed, 0.1):,.0f} steps/s, seed {campaign.seed}"
    )
    tell(
        f"  exercised {len(coverage.actions)} actions, {len(coverage.branches)} branches of guards, "
        f"{len(coverage.invariants)} invariants, {campaign.states} abstract states",
        "dim",
    )
    tell(f"  summary: {folder / 'summary.html'}", "dim")
    if whole.died:
        note(f"{whole.died} jobs died and were begun again; what they did last is lost")
    for found in campaign.found.values():
        after = f"after {', '.join(found.trouble.after)}" if found.trouble.after else "new"
        named = ", ".join(found.trouble.faults) or after
        say_lines([Text(f"{found.number}  ", "bold red") + Text(found.trouble.signature)])
        say(
            f"   {named}; {len(found.schedule.acts)} acts; first after {found.after_seconds:.1f} s and "
            f"{found.after_schedules} schedules, {found.times} times"
        )
        say(f"   see it: {folder / str(found.number) / 'report.txt'}")
        say(f"   again:  {to_play_again(whole.plan.target, folder / str(found.number))}")
    if not campaign.found:
        say("nothing found", "bold green")


def play_again(place: Path, chosen: str | None, isolate: bool | None, step_seconds: float) -> ExitCode:
    """Play the schedule of a finding once more. `chosen`: the target that the user named, if any."""
    played = replay_finding(place, chosen=chosen, isolates=isolate, step_seconds=step_seconds)
    trouble = played.trouble
    answer_with(verdict="nothing found" if trouble is None else "found", trouble=trouble and trouble.signature)
    if played.trouble is None:
        say(f"nothing wrong any more: {played.seen} events, {played.steps} steps", "bold green")
        return ExitCode.PASS
    for line in report_lines(played.trouble, played):
        say(line)
    return ExitCode.VIOLATION
