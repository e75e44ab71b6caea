"""Runs inside SGLang's environment: schedules are played on the release, and the trouble of each is reported."""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.fuzz.finding_folder import replay_finding


def signatures(*schedules: str) -> list[str]:
    played = (replay_finding(Path(schedule), isolates=False) for schedule in schedules)
    return [one.trouble.signature for one in played if one.trouble is not None]
