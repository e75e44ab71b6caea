"""Real SGLang, driven and recorded in this process on a machine without a GPU.

`record_scenario` runs one of `SCENARIOS` on the release that the interpreter imports and writes its trace. Reading the table
needs no SGLang; recording does.
"""

from __future__ import annotations

from .record import RecordResult, record_scenario
from .releases import RELEASES, Known, Release
from .scenarios import SCENARIOS, Scenario

__all__ = ["RELEASES", "SCENARIOS", "Known", "RecordResult", "Release", "Scenario", "record_scenario"]
