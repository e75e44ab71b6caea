"""A whole campaign: its jobs, what they found together, and what of that lies in its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from kvproof.conformance.compiled.choose import AUTO
from kvproof.conformance.fuzz.campaign import Campaign, merged
from kvproof.conformance.fuzz.campaign_state import (
    State,
    campaign_as_data,
    campaign_from_data,
    campaigns_of,
    save_state,
)
from kvproof.conformance.fuzz.finding_folder import leave, write_text
from kvproof.conformance.fuzz.growth import Sample
from kvproof.conformance.fuzz.isolation import InThisProcess, Isolated, Player
from kvproof.conformance.fuzz.judging import judging_by
from kvproof.conformance.fuzz.play import STEP_SECONDS
from kvproof.conformance.fuzz.saved_play import Data
from kvproof.conformance.fuzz.summary_page import summary_page
from kvproof.conformance.fuzz.target import Target

SAVE_SECONDS, LOOK_SECONDS = 5.0, 0.25
EXAMPLES = "examples"

OnCounts = Callable[[int, int, int], None]
"""Is called with the numbers of schedules, steps and kinds of trouble so far."""


@dataclass(frozen=True)
class SearchOptions:
    """How a campaign is run this time; it may be run otherwise when it continues."""

    seconds: float
    jobs: int = 1
    isolates: bool = False
    step_seconds: float = STEP_SECONDS
    most: int | None = None
    """Kinds of trouble, after which it stops."""
    checker: str = AUTO
    """Who judges, as in `replay`."""


class CampaignJobs:
    """All jobs, as far as they were heard of."""

    def __init__(self, target: Target, state: State, how: SearchOptions, folder: Path, progress: OnCounts) -> None:
        self.target, self.plan, self.how, self.folder = target, state.plan, how, folder
        self._state, self._progress = state, progress
        self.jobs = campaigns_of(state, target, folder)
        self.jobs += [state.plan.campaign(target, job) for job in range(len(self.jobs), how.jobs)]
        for job in self.jobs:
            job.seconds = job.elapsed + how.seconds
        self._left: dict[str, str] = {}
        """What lies in the folder of each finding."""
        self.total = merged(self.jobs, state.numbers)
        for signature, found in self.total.found.items():
            self._left[signature] = found.schedule.as_json()
        self._save_at = self._look_at = 0.0

    @property
    def growth(self) -> list[Sample]:
        return self._state.growth.samples

    @property
    def died(self) -> int:
        return self._state.died

    @property
    def is_enough(self) -> bool:
        return self.how.most is not None and len(self.total.found) >= self.how.most

    def took(self, job: Campaign) -> None:
        """A job stands where it says; what is new in it is left, and known to all from now on."""
        self.jobs[job.job] = job
        self.total = merged(self.jobs, self._state.numbers)
        for signature, found in self.total.found.items():
            if self._left.get(signature) != found.schedule.as_json():
                self._left[signature] = found.schedule.as_json()
                leave(found, self.folder)
                self._save_at = 0.0
        self._state.growth.sample(self.total)
        if time.monotonic() >= self._save_at:
            self.save()
        self.tell()

    def look(self, job: Campaign) -> None:
        """A job in this process says where it stands after each schedule: every quarter of a second that is taken."""
        if time.monotonic() >= self._look_at:
            self.took(job)
            self._look_at = time.monotonic() + LOOK_SECONDS

    def tell(self, schedules: int = 0, steps: int = 0) -> None:
        """`schedules`, `steps`: those since the jobs were heard of."""
        total = self.total
        self._progress(total.schedules + schedules, total.steps + steps, len(total.found))

    def lost(self, job: int) -> None:
        """A job died. What it did since it was heard of is gone; the round in which it died is not drawn again."""
        self._state.died += 1
        self.jobs[job].rounds += 1

    def save(self) -> None:
        self._state.jobs = [campaign_as_data(job) for job in self.jobs]
        save_state(self._state, self.folder)
        self._save_at = time.monotonic() + SAVE_SECONDS

    def end(self) -> None:
        self._state.growth.sample(self.total, at_once=True)
        self.save()

    def asked_of(self, job: int) -> Data:
        """What a job continues with somewhere else."""
        campaign = self.jobs[job]
        campaign.known |= set(self.total.found)
        return campaign_as_data(campaign)

    def said_by(self, data: Data) -> Campaign:
        """A job as it comes back from there."""
        return campaign_from_data(data, self.plan, self.target)


def leave_summary(whole: CampaignJobs, folder: Path) -> None:
    campaign = whole.total
    summary = {
        "target": whole.plan.target,
        "faults": campaign.faults,
        "settings": dict(campaign.pinned),
        "seed": campaign.seed,
        "jobs": whole.how.jobs,
        "died": whole.died,
        "seconds": round(campaign.elapsed, 1),
        "schedules": campaign.schedules,
        "steps": campaign.steps,
        "events": campaign.events,
        "steps_per_second": round(campaign.steps / max(campaign.elapsed, 0.1)),
        "coverage": {name: dict(part) for name, part in vars(campaign.coverage).items()},
        "found": [
            {
                "number": found.number,
                "signature": found.trouble.signature,
                "faults": found.trouble.faults,
                "after": found.trouble.after,
                "times": found.times,
                "after_seconds": round(found.after_seconds, 2),
                "after_schedules": found.after_schedules,
                "acts": len(found.schedule.acts),
            }
            for found in campaign.found.values()
        ],
        "growth": [sample._asdict() for sample in whole.growth],
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    write_text(folder / "summary.html", summary_page(summary))


def player_of(target: Target, how: SearchOptions, waits: Callable[[str], None] = lambda _: None) -> Player:
    """`waits` is called where the checker has to be compiled first."""
    player = Isolated if how.isolates else InThisProcess
    return player(target, how.step_seconds, _judging(how.checker, how.seconds, waits))


_judging = cache(judging_by)
"""Compiled once: the processes that are forked have it then."""


def database_of(folder: Path, job: int) -> ExampleDatabase:
    """What Hypothesis found is tried first when it continues there. Each job has its own: none changes another's search."""
    return KeptExamples(folder / EXAMPLES / str(job))


class KeptExamples(DirectoryBasedExampleDatabase):
    """Examples that failed stay: Hypothesis would drop those that fail no more because they are known."""

    def delete(self, key: bytes, value: bytes) -> None:
        if key.endswith((b".secondary", b".pareto")):
            super().delete(key, value)
