"""Schedules that bring the real scheduler into every corner of a session's life.

A scenario drives a `Headless` as clients would and says nothing about what should come out.
"""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.scenarios import (
    aborted_turns,
    concurrent_turns,
    matrix,
    small_pools,
    well_behaved,
)
from kvproof.conformance.adapters.sglang.scenarios.scenario import Scenario

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS: dict[str, Scenario] = {
    **well_behaved.SCENARIOS,
    **small_pools.SCENARIOS,
    **matrix.SCENARIOS,
    **aborted_turns.SCENARIOS,
    **concurrent_turns.SCENARIOS,
}
