"""How a campaign grew: a few hundred samples of what was tried and found, for the summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kvproof.conformance.fuzz.campaign import Campaign
from kvproof.conformance.replay.kept_types import Count, Seconds

SHORTEST, SHARE = 0.25, 1 / 100
"""Seconds between two samples: at least so many, and this share of the time so far."""


class Sample(NamedTuple):
    seconds: Seconds
    schedules: Count
    steps: Count
    actions: Count
    branches: Count
    invariants: Count
    states: Count
    found: Count


@dataclass
class Growth:
    """Samples in the order of time. When a campaign continues later, that time follows at once."""

    samples: list[Sample] = field(default_factory=list)

    def sample(self, campaign: Campaign, *, at_once: bool = False) -> None:
        """Note where a campaign stands, if it is time for that."""
        last = self.samples[-1].seconds if self.samples else -SHORTEST
        if at_once or campaign.elapsed >= last + max(SHORTEST, SHARE * campaign.elapsed):
            coverage = campaign.coverage
            counted = (len(coverage.actions), len(coverage.branches), len(coverage.invariants), campaign.states)
            tried = (round(campaign.elapsed, 2), campaign.schedules, campaign.steps)
            self.samples.append(Sample(*tried, *counted, len(campaign.found)))
