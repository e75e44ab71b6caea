"""A campaign in the middle of a test: short, and over with the first finding."""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions
from kvproof.conformance.fuzz.campaign_state import Plan, State
from kvproof.conformance.fuzz.finding_folder import report_lines, require_writable
from kvproof.conformance.fuzz.jobs import search_here
from kvproof.conformance.fuzz.schedule import Setting
from kvproof.conformance.fuzz.targets import target_named


def bounded_campaign(
    target: str,
    folder: Path,
    *,
    seconds: float,
    seed: int = 0,
    settings: dict[str, Setting] | None = None,
    faults: tuple[str, ...] = (),
    profile: str | None = None,
) -> tuple[Path, list[str]] | None:
    """Fuzz until something is found: its folder and its report, or None. Raises UserError, also if nothing could be played."""
    chosen = target_named(target)
    plan = Plan(target, seed, faults, dict(settings or {}), profile).for_target(chosen)
    require_writable(folder)
    how = SearchOptions(seconds, isolates=target != "reference", most=1)
    whole = CampaignJobs(chosen, State(plan), how, folder, lambda *_: None)
    search_here(whole)
    whole.end()
    if not whole.total.schedules:
        raise UserError(f"target {target}: no schedule was played, so nothing was checked")
    for found in whole.total.found.values():
        place = folder / str(found.number)
        return place, report_lines(found.trouble, found.played, place)
    return None
