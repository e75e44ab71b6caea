"""sglang-jax before and after its fixes, judged by the specification: what conforms, what is flagged, and by which name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_jax_checkouts import AFTER_1008, COMMITS, run_on
from sglang_jax_verdicts import PAGE, VERDICTS, own_checks, table, verdicts_in
from verdict_page import Verdicts

from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Finding, replay

RecordedOn = Callable[[str], Path]
FIXED = ("after #1401", "2026-08-21")

# Of every scenario on every commit, written by sglang_jax_verdicts.py; docs/sglang-jax.md says what is behind each.
EXPECTED: Verdicts = json.loads(VERDICTS.read_text())


def first_finding(traces: Path, scenario: str, page_size: int) -> Finding:
    report = replay(traces / f"{scenario}-p{page_size}.jsonl")
    assert report.verdict == VIOLATES and report.first is not None
    return report.first


def conforms(traces: Path, scenario: str, page_size: int) -> bool:
    return replay(traces / f"{scenario}-p{page_size}.jsonl").verdict == CONFORMS


def names(finding: Finding) -> list[str]:
    return [fault.id for fault in finding.explained_by]


@pytest.mark.sglang_jax
@pytest.mark.parametrize("commit", COMMITS)
def test_each_scenario_has_its_verdict(recorded_on: RecordedOn, commit: str) -> None:
    assert verdicts_in(recorded_on(commit)) == EXPECTED[commit]


def test_the_table_of_the_page_is_what_was_found() -> None:
    assert PAGE.read() == table(EXPECTED)


def test_expected_verdicts_say_that_fixed_checkouts_keep_every_rule() -> None:
    """What is expected is no list of whatever was seen."""
    for commit in FIXED:
        assert {words for sizes in EXPECTED[commit].values() for words in sizes.values()} == {CONFORMS}


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (1, 4, 16))
def test_a_row_that_is_freed_between_chunks_is_f17850(recorded_on: RecordedOn, page_size: int) -> None:
    found = first_finding(recorded_on("before #1008"), "two-chunks-no-tree", page_size)
    assert found.event.action == "stash" and found.event.row is None
    assert names(found) == ["F17850"]
    assert conforms(recorded_on(AFTER_1008), "two-chunks-no-tree", page_size)


@pytest.mark.sglang_jax
def test_with_a_tree_that_row_is_seen_at_the_insert_of_the_chunk(recorded_on: RecordedOn) -> None:
    found = first_finding(recorded_on("before #1008"), "two-chunks", 1)
    assert (found.event.action, set(found.invariants)) == ("insert", {"I5"})
    assert conforms(recorded_on(AFTER_1008), "two-chunks", 1)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (4, 16))
def test_duplicates_from_len_of_prefix_indices_leave_a_freed_page_in_the_row(
    recorded_on: RecordedOn, page_size: int
) -> None:
    """F994a: the page is freed as a whole, but the row is written anew only behind the unaligned tail."""
    found = first_finding(recorded_on("before #994"), "overtaken", page_size)
    assert all(own_checks(recorded_on("before #994") / f"overtaken-p{page_size}.jsonl")), "sums see nothing of it"
    (lost,) = found.pages
    page = int(lost.removeprefix("duplicate replaced by page ").removesuffix(" of free list"))
    assert found.event.action == "insert"
    assert page in found.event.free and page in (found.event.shared or ())


@pytest.mark.sglang_jax
@pytest.mark.parametrize("commit", ("after #994", "before #1401"))
@pytest.mark.parametrize("page_size", (4, 16))
def test_994_does_not_end_that_and_1401_does(recorded_on: RecordedOn, commit: str, page_size: int) -> None:
    found = first_finding(recorded_on(commit), "overtaken", page_size)
    (difference,) = found.differences
    assert (found.event.action, difference.name) == ("extend", "cache_protected_len")
    assert difference.seen % page_size and difference.expected == difference.seen // page_size * page_size
    assert conforms(recorded_on("after #1401"), "overtaken", page_size)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (4, 16))
def test_a_finish_frees_the_page_of_an_unaligned_prefix_in_either_form(recorded_on: RecordedOn, page_size: int) -> None:
    """The leak that F994a is in the catalogue does not come about here: freeing any index of a page frees the page."""
    for commit in ("before #994", "after #994"):
        traces = recorded_on(commit)
        events = replay(traces / f"same-twice-p{page_size}.jsonl")
        assert events.verdict == CONFORMS and events.actions["finish_plain"] == 2


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (4, 16))
def test_a_windowed_finish_that_strips_the_last_slot_is_f994b(recorded_on: RecordedOn, page_size: int) -> None:
    found = first_finding(recorded_on("before #994"), "window-late-result", page_size)
    assert found.event.action == "finish" and names(found) == ["F994b"]
    assert conforms(recorded_on("after #994"), "window-late-result", page_size)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (1, 4, 16))
def test_without_overlap_nothing_is_behind_the_slot_that_f994b_strips(recorded_on: RecordedOn, page_size: int) -> None:
    assert conforms(recorded_on("before #994"), "window", page_size)


@pytest.mark.sglang_jax
def test_a_late_result_frees_a_slot_that_the_release_is_to_have(recorded_on: RecordedOn) -> None:
    """F994c: the release hands all that is committed to the tree, the slot of the step in flight included."""
    found = first_finding(recorded_on("before #994"), "late-result", 1)
    (page,) = found.event.free
    assert found.event.action == "result" and found.pages == (f"page {page} was freed; the owner was tree",)
    assert conforms(recorded_on("after #994"), "late-result", 1)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (4, 16))
def test_a_late_result_of_a_mixed_batch_frees_a_page_twice(recorded_on: RecordedOn, page_size: int) -> None:
    """F994c as a double free; the allocator drops the second one unless the page was handed out in between."""
    traces = recorded_on("before #994")
    found = first_finding(traces, "late-result-mixed", page_size)
    (page,) = found.event.free
    assert found.event.action == "result" and found.pages == (f"page {page} was freed; the owner was free list",)
    assert own_checks(traces / f"late-result-mixed-p{page_size}.jsonl") == [True, True]
    assert conforms(recorded_on("after #994"), "late-result-mixed", page_size)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (1, 4, 16))
def test_a_token_of_a_chunk_in_the_middle_is_f994d(recorded_on: RecordedOn, page_size: int) -> None:
    found = first_finding(recorded_on("before #994"), "many-chunks-overlap", page_size)
    assert found.event.action == "result" and names(found) == ["F994d"]
    assert conforms(recorded_on("after #994"), "many-chunks-overlap", page_size)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", (4, 16))
def test_one_release_frees_the_open_page_twice_before_994(recorded_on: RecordedOn, page_size: int) -> None:
    found = first_finding(recorded_on("before #994"), "plain", page_size)
    page, again = found.event.free
    assert found.event.action == "finish" and page == again
    assert conforms(recorded_on("after #994"), "plain", page_size)


@pytest.mark.sglang_jax
def test_the_schedules_bring_about_what_they_are_named_for(recorded_on: RecordedOn) -> None:
    traces = recorded_on("2026-08-21")
    for scenario, action in [
        ("retract", "retract_plain"),
        ("retract-overlap", "retract_plain"),
        ("pressure", "evict"),
        ("window", "evict_window"),
        ("window-late-result", "evict_window"),
        ("two-chunks-no-tree", "stash"),
        ("many-chunks-overlap", "chunk_result"),
    ]:
        for page_size in (1, 4, 16):
            assert replay(traces / f"{scenario}-p{page_size}.jsonl").actions[action], (scenario, page_size)
    assert replay(traces / "retract-p1.jsonl").actions["evict"], "what a retract evicts comes after it"


@pytest.mark.sglang_jax
def test_the_record_command_writes_a_trace_that_replays(tree_of: RecordedOn, tmp_path: Path) -> None:
    out = tmp_path / "plain.jsonl"
    asked = ("record", "--target", "sglang-jax", "--scenario", "plain", "--page-size", "4", "--out", str(out))
    printed = run_on(tree_of("after #994"), "-c", "from kvproof.conformance.cli.program import main; main()", *asked)
    assert "page size 4, scenario plain" in printed
    assert replay(out).verdict == CONFORMS


@pytest.mark.sglang_jax
@pytest.mark.parametrize("commit", ("before #1008", "after #994", "2026-08-21"))
def test_the_scheduler_does_the_same_with_a_recorder_and_without(tree_of: RecordedOn, commit: str) -> None:
    output = run_on(tree_of(commit), str(Path(__file__).with_name("drive_twice.py"))).splitlines()
    assert output == [f"compared {2 * len(EXPECTED[commit])}"]
