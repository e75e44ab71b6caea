"""Schedules from the prover, as they were searched for last (`seed_search.py`)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from kvproof.conformance.fuzz.schedule import Schedule

SEEDS = "seeds.jsonl"
"""Beside this file. Written by `make docs`, because to search for the runs takes seconds."""


@cache
def seeds() -> tuple[Schedule, ...]:
    """Those for the shortest run of each fault of the ledger, and to each corner, as they were searched for last."""
    text = files("kvproof.conformance.fuzz").joinpath(SEEDS).read_text(encoding="utf-8")
    return tuple(map(Schedule.model_validate_json, text.splitlines()))
