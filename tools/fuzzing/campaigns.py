"""Campaigns in this process for benchmarks, soaks and tests, and schedules by chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.database import ExampleDatabase

from kvproof.conformance.compiled.choose import AUTO
from kvproof.conformance.fuzz.campaign import Campaign, OnFound, OnSchedule, search
from kvproof.conformance.fuzz.generate import schedules
from kvproof.conformance.fuzz.isolation import InThisProcess
from kvproof.conformance.fuzz.judging import judging_by
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.target import Target
from kvproof.impl.faults import FAULTS
from kvproof.spec.faults import FAULTS as CATALOGUE


def run_campaign(
    target: Target,
    *,
    seconds: float,
    seed: int = 0,
    faults: Sequence[str] = (),
    pinned: Mapping[str, Setting] | None = None,
    profile: str | None = None,
    is_enough: Callable[[Campaign], bool] = lambda _: False,
    database: ExampleDatabase | None = None,
    progress: OnSchedule = lambda _: None,
    found: OnFound = lambda _: None,
    checker: str = AUTO,
) -> Campaign:
    """Fuzz for so many seconds, or until what is found is enough; `found` gets each finding once it is shrunk.

    `checker`: who judges, as in `replay`.
    """
    campaign = Campaign(target, tuple(faults), dict(pinned or {}), seed, seconds, profile=profile)
    player = InThisProcess(target, new_judging=judging_by(checker, seconds))
    search(campaign, player, is_enough=is_enough, database=database, progress=progress, found=found)
    return campaign


def drawn(target: Target, count: int, seed: int, pinned: Mapping[str, Setting] | None = None) -> list[Schedule]:
    """So many schedules by chance, the same for the same seed; fewer where the same ones come again."""
    some: list[Schedule] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @hypothesis.given(schedules(target, pinned))
    def draw(schedule: Schedule) -> None:
        some.append(schedule)

    draw()
    return some


def faults_of_the_reference() -> list[str]:
    """Those of the catalogue that it has; others are of the tree's rules alone, or of releases with another design."""
    return [fault for fault in CATALOGUE if fault in FAULTS]
