"""The scheduler does the same with a recorder as without one, and the recorder tells nothing of what users say."""

from __future__ import annotations

import pytest
from sglang_process import OLDEST_IN_FULL, called

EACH = pytest.mark.parametrize("release", OLDEST_IN_FULL)


@EACH
def test_recording_changes_nothing_that_the_scheduler_does(release: str) -> None:
    """Same outputs, same free lists, in order."""
    assert called(release, "drive_same:recorded") >= 32


@pytest.mark.parametrize("release", OLDEST_IN_FULL[:2])
def test_same_outputs_and_pools_whatever_becomes_of_the_recorder(release: str) -> None:
    compared = called(release, "drive_same:whatever_becomes_of_the_recorder")
    assert [ended for way, ended in compared if way == "nothing"].count("finished") > 4  # most reach their end
    ways = {"nothing", "decode breaks", "sessions break", "match breaks", "writer is killed", "pipe is slow"}
    assert {way for way, _ in compared} == ways


@pytest.mark.parametrize("page_size", [1, 16])
@EACH
def test_other_words_of_the_same_lengths_leave_the_same_bytes(release: str, page_size: int) -> None:
    found = called(release, "drive_same:other_words", page_size)
    assert len(set(found["ended"])) == 1  # 0.5.10.post1 comes to a standstill, as its faults have it
    assert found["events"] > 100 and found["words"] > 100 and found["words that stayed"] == 0
    assert found["same trace"]
    assert not found["same trace though a word is reported"], "a recorder that reports a word is noticed"
