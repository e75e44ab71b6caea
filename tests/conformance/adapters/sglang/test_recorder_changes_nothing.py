"""The scheduler does the same with a recorder as without one: one that works, and ones that fail in every way."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import RELEASES, run_with_sglang

pytestmark = pytest.mark.sglang


@pytest.mark.parametrize("release", RELEASES)
def test_same_outputs_and_pools_whatever_becomes_of_the_recorder(release: str) -> None:
    output = run_with_sglang(release, str(Path(__file__).with_name("drive_captured.py")))
    assert output.splitlines()[-1] == "same"
    assert output.count(", captured: finished") > 4, output  # most schedules reach their end
    for way in ("decode breaks", "sessions break", "match breaks", "writer is killed", "pipe is slow"):
        assert way in output
