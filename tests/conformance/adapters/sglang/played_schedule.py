"""Runs inside SGLang's environment: a schedule is played on the release, and its trouble is told."""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.fuzz.finding_folder import replay_finding


def signature(schedule: str) -> str:
    trouble = replay_finding(Path(schedule)).trouble
    return trouble.signature if trouble is not None else ""
