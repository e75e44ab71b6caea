"""A scheduler that stands still: that server is not idle, no page is missing, and it is found if there was room."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import LATER, called, often_and_in_full

from kvproof.conformance.replay.replay import CONFORMS, VIOLATES

KEPT_TWICE = "a chunk is kept by copying its row: a session turn's, and any on a chunk cache"
"""What 0.5.11 does wrong then: docs/findings/chunk_without_room.md."""


@pytest.mark.parametrize("release", often_and_in_full(("0.5.11", LATER[-1])))
def test_a_standstill_is_no_memory_check_of_an_idle_server(release: str, tmp_path: Path) -> None:
    idle, *found = called(release, "drive_standstill:found", tmp_path)
    assert found == [[KEPT_TWICE] if release == "0.5.11" else []] * 2
    assert idle > 3  # it did stand still


@pytest.mark.parametrize("release", often_and_in_full(("0.5.11", LATER[-1])))
def test_a_request_that_is_kept_out_while_another_runs_is_found_with_a_window_pool(
    release: str, tmp_path: Path
) -> None:
    right, wrong = called(release, "drive_standstill:kept_out", tmp_path)
    waits = "request b: a queued turn is matched: after 64 passes of the scheduler it stands where it stood"
    assert right == [CONFORMS, []]
    assert wrong == [VIOLATES, [waits]]
