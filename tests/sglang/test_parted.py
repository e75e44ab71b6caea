"""From 0.5.20 on a prompt whose prefix has lost its window pages is inserted only up to where it parts: no event says so.

That is no violation: the trace ends there, with the reason, and its verdict is incomplete.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sglang_process import IN_BETWEEN, LATER, run_with_sglang

INSERTED_WHOLE = ("0.5.11", "0.5.12", "0.5.14", "0.5.17")
OFTEN = ("0.5.11", LATER[-1])


@pytest.mark.parametrize(
    "release",
    [
        *(pytest.param(release, marks=pytest.mark.sglang) for release in OFTEN),
        *(pytest.param(release, marks=pytest.mark.sglang_full) for release in IN_BETWEEN),
    ],
)
def test_what_no_event_says_is_incomplete_and_no_violation(release: str, tmp_path: Path) -> None:
    output = run_with_sglang(release, str(Path(__file__).with_name("drive_parted.py")), str(tmp_path))
    runs = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    is_whole = release in INSERTED_WHOLE
    assert [run["verdict"] for run in runs] == ["conforms" if is_whole else "incomplete"] * 2
    assert [run["found"] for run in runs] == [[], []]
    assert all(run["reason"] == "finished" if is_whole else "window pages" in run["reason"] for run in runs)
