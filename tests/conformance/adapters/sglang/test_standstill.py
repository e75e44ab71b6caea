"""A prompt in chunks for which the window pool is too small stands still: that server is not idle, and no page is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sglang_process import IN_BETWEEN, LATER, run_with_sglang

KEPT_TWICE = "a chunk is kept by copying its row: a session turn's, and any on a chunk cache"
"""What 0.5.11 does wrong then: docs/findings/chunk_without_room.md."""


@pytest.mark.parametrize(
    ("release", "found"),
    [
        pytest.param("0.5.11", [KEPT_TWICE], marks=pytest.mark.sglang),
        pytest.param(LATER[-1], [], marks=pytest.mark.sglang),
        *(pytest.param(release, [], marks=pytest.mark.sglang_full) for release in IN_BETWEEN),
    ],
)
def test_a_standstill_is_no_memory_check_of_an_idle_server(release: str, found: list[str], tmp_path: Path) -> None:
    output = run_with_sglang(release, str(Path(__file__).with_name("drive_standstill.py")), str(tmp_path))
    runs = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [(run["run"], run["found"]) for run in runs] == [("driven", found), ("captured", found)]
    assert runs[0]["idle"] > 3  # it did stand still
