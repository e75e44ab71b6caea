"""Traces of real releases that are kept, so that what was seen of them is judged ever after, without their software."""

from __future__ import annotations

from pathlib import Path

from repository import GOLDEN

OF_SGLANG_0523 = GOLDEN / "sglang-0.5.23"
"""Recorded by `tools/record_scenarios.py`, in 0.5.23's own scheduler: SCENARIO-pPAGE_SIZE.jsonl.gz."""


def of_sglang_0523(name: str) -> Path:
    return OF_SGLANG_0523 / f"{name}.jsonl.gz"
