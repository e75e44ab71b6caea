"""A prompt in chunks for which the window pool is too small stands still: that server is not idle, and no page is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import LATER, called, often_and_in_full

KEPT_TWICE = "a chunk is kept by copying its row: a session turn's, and any on a chunk cache"
"""What 0.5.11 does wrong then: docs/findings/chunk_without_room.md."""


@pytest.mark.parametrize("release", often_and_in_full(("0.5.11", LATER[-1])))
def test_a_standstill_is_no_memory_check_of_an_idle_server(release: str, tmp_path: Path) -> None:
    idle, *found = called(release, "drive_standstill:found", tmp_path)
    assert found == [[KEPT_TWICE] if release == "0.5.11" else []] * 2
    assert idle > 3  # it did stand still
