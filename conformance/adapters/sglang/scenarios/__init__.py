"""Schedules that bring the real scheduler into every corner of a session's life.

A scenario drives a `Headless` as clients would and says nothing about what should come out.
"""

from __future__ import annotations

from kvproof.conformance.adapters.sglang.scenarios import ended_badly, impatient, matrix, pressure, served
from kvproof.conformance.adapters.sglang.scenarios.scenario import Scenario

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS: dict[str, Scenario] = {
    **served.ROOM,
    **pressure.ROOM,
    **matrix.ROOM,
    **ended_badly.ROOM,
    **impatient.ROOM,
}
