"""A wrong evict is the cause that is named, not the next event that meets its consequence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden import GOLDEN
from run_traces import Records, records_of
from trace_events import copied, write_records

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import Finding

PRESSURE = GOLDEN / "sglang-0.5.11-cpu" / "pressure.jsonl.gz"
BEFORE_A_DECODE, BEFORE_TWO_EXTENDS = 339, 195
"""Evicts of the trace, by seq."""


def first(tmp_path: Path, change: Callable[[Records], object], checker: str = "interpreted") -> Finding:
    if checker == "compiled":
        pytest.importorskip("numba")
    path = tmp_path / "t.jsonl"
    copied(PRESSURE, path)
    records = records_of(path)
    change(records)
    found = replay(write_records(path, records), profile="auto", checker=Chosen(checker)).first
    assert found is not None
    return found


def of_evict(seq: int, free: Callable[[list[int]], list[int]]) -> Callable[[Records], object]:
    def change(records: Records) -> None:
        evict = records[seq + 1]
        assert evict["action"] == "evict"
        evict["free"] = free(evict["free"])

    return change


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
def test_an_evict_that_leaves_a_page_out_is_blamed(checker: str, tmp_path: Path) -> None:
    found = first(tmp_path, of_evict(BEFORE_A_DECODE, lambda free: free[1:]), checker)
    assert found.event.action == "decode" and not found.explained_by
    assert found.cause == "event 339 (line 341), evict, left out page 65, which the tree gave up"


def test_the_evict_may_make_room_for_several_events_of_its_step(tmp_path: Path) -> None:
    found = first(tmp_path, of_evict(BEFORE_TWO_EXTENDS, lambda free: free[free.index(26) :]))
    assert found.event.seq == BEFORE_TWO_EXTENDS + 2
    left_out = "12, 24, 33, 38, 43, 48, 52, 56, 59, 62"
    assert found.cause == f"event 195 (line 197), evict, left out pages {left_out}, which the tree gave up"


@pytest.mark.parametrize("checker", ["interpreted", "compiled"])
def test_an_evict_of_a_page_without_its_continuation_is_wrong_itself(checker: str, tmp_path: Path) -> None:
    found = first(tmp_path, of_evict(BEFORE_TWO_EXTENDS, lambda free: free[1:]), checker)
    assert (found.event.seq, [*found.invariants]) == (BEFORE_TWO_EXTENDS, ["I13"])
    assert found.pages == ("evicted page 10 is continued by page 12, which stays in the tree",)


def test_an_evict_that_gives_up_a_page_which_the_tree_keeps_is_blamed(tmp_path: Path) -> None:
    """The memory check says so: in its terms alone, or with the list of free pages."""
    more = of_evict(BEFORE_TWO_EXTENDS, lambda free: [22, *free])
    found = first(tmp_path, more)
    assert found.event.action == "check"
    assert found.cause == "event 195 (line 197), evict, gave up page 22, which the tree still has"

    def without_lists(records: Records) -> None:
        more(records)
        for record in records:
            record.pop("free_list", None)

    found = first(tmp_path, without_lists)
    assert found.event.action == "check"
    assert found.cause == "", "several evicts since the check before: the terms do not say which"


def test_two_evicts_of_one_page_are_both_named(tmp_path: Path) -> None:
    found = first(tmp_path, of_evict(BEFORE_A_DECODE, lambda free: [70, *free]))
    assert found.event.action == "evict" and found.event.seq == 388
    assert found.cause == "event 339 (line 341), evict, gave up page 70, too: one of the two is wrong"


def test_an_evict_that_was_left_out_is_missing(tmp_path: Path) -> None:
    def drop(records: Records) -> None:
        del records[BEFORE_A_DECODE + 1]
        for seq, record in enumerate(records[1:-1]):
            record["seq"] = seq
        records[-1]["events"] = len(records) - 2

    found = first(tmp_path, drop)
    assert found.cause == "an event is missing before event 339, probably evict of page 65"
