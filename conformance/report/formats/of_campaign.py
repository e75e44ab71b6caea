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
    pinned = dict(campaign.pinned)
    yield Fuzzed.about(campaign, target=target, settings=pinned, found=len(campaign.found), seconds=campaign.elapsed)


def _troubled(found: Found, target: str, place: Path) -> Troubled:
    """What a target raised may quote what it worked on; that stays in the report of the finding."""
    trouble, finding = found.trouble, found.trouble.finding
    in_trace = finding if found.played.header is not None else None
    return Troubled.about(
        found,
        trouble,
        acts=len(found.schedule.acts),
        seconds=found.after_seconds,
        folder=str(place),
        again=to_play_again(target, place),
        path=str(place / (REPORT if in_trace is None else TRACE)),
        line=1 if in_trace is None else in_trace.line,
        seq=None if in_trace is None else in_trace.event.seq,
        invariants={} if finding is None else finding.invariants,
    )
