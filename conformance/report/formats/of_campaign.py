"""What a fuzzer found as events of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvproof.conformance.fuzz.campaign import Campaign, Found
from kvproof.conformance.fuzz.finding_folder import REPORT, TRACE
from kvproof.conformance.fuzz.targets import to_play_again
from kvproof.conformance.report.formats.of_replay import covered
from kvproof.conformance.report.formats.run_events import Fuzzed, Troubled


def events_of_campaign(campaign: Campaign, target: str, folder: Path) -> Iterator[Any]:
    """Each kind of trouble, then what was exercised, then the campaign. `folder`: where the findings lie."""
    for found in campaign.found.values():
        yield _troubled(found, target, folder / str(found.number))
    yield covered(campaign.coverage)
    yield Fuzzed(
        target=target,
        seed=campaign.seed,
        faults=campaign.faults,
        settings=dict(campaign.pinned),
        profile=campaign.profile,
        schedules=campaign.schedules,
        steps=campaign.steps,
        events=campaign.events,
        found=len(campaign.found),
        seconds=round(campaign.elapsed, 1),
    )


def _troubled(found: Found, target: str, place: Path) -> Troubled:
    """What a target raised may quote what it worked on; that stays in the report of the finding."""
    trouble, finding = found.trouble, found.trouble.finding
    in_trace = finding is not None and found.played.header is not None
    return Troubled(
        number=found.number,
        kind=trouble.kind,
        signature=trouble.signature,
        sentence=trouble.sentence,
        faults=trouble.faults,
        after=trouble.after,
        times=found.times,
        acts=len(found.schedule.acts),
        seconds=round(found.after_seconds, 2),
        folder=str(place),
        again=to_play_again(target, place),
        path=str(place / (TRACE if in_trace else REPORT)),
        line=finding.line if finding is not None and in_trace else 1,
        seq=finding.event.seq if finding is not None and in_trace else None,
        invariants=finding.invariants if finding is not None else {},
    )
