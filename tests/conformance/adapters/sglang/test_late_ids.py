"""On a GPU the ids of pages come after the events that name them. The trace is the one that it would be if they came at once.

Seen on an H100: evictions were missing, and window pages that went back where a request ended; sound releases were called wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import EACH_RELEASE, LATER, called

from kvproof.conformance.replay.replay import CONFORMS

# Between them they have every event that names pages. Kernels of speculation take seconds on a CPU.
SCENARIOS = ("pressure", "retract", "chunked", "matrix-window-overlap", "matrix-chunk-cache-window", "matrix-checked")
WITH_DRAFTS = ("matrix-speculation-window", "matrix-speculation-v1-window")


@pytest.mark.parametrize(("page_size", "names"), [(1, SCENARIOS), (4, SCENARIOS + WITH_DRAFTS)])
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_a_trace_is_the_same_when_page_ids_come_late(release: str, page_size: int, names: tuple[str, ...]) -> None:
    events = called(release, "drive_late_ids:same_traces", names, page_size)
    assert len(events) >= len(names) - 1 and min(events.values()) > 100


@pytest.mark.sglang
def test_window_pages_that_the_tree_takes_over_are_told_when_their_ids_come_late(tmp_path: Path) -> None:
    found = called(LATER[-1], "drive_late_ids:parted", tmp_path)
    assert [run["verdict"] for run in found] == [CONFORMS] * 4
    assert [run["taken over"] for run in found] == [[], [], [[1]], [[1]]]
