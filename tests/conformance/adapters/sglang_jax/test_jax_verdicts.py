"""sglang-jax before and after its fixes, judged by the specification: what conforms, what is flagged, and by which name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_jax_checkouts import AFTER_1008, COMMITS, run_on
from sglang_jax_verdicts import PAGE, VERDICTS, table, verdicts_in
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


ANY, PAGES = (1, 4, 16), (4, 16)
SHOWN = [
    ("two-chunks-no-tree", ANY, "before #1008", AFTER_1008, "stash, F17850"),
    ("two-chunks", (1,), "before #1008", AFTER_1008, "insert, I5"),  # with a tree that row is seen at the insert
    ("overtaken", PAGES, "before #994", "after #1401", "insert, I12"),  # F994a: a freed page stays in the row
    ("overtaken", PAGES, "after #994", "after #1401", "extend, I12"),  # #994 does not end that
    ("overtaken", PAGES, "before #1401", "after #1401", "extend, I12"),
    ("window-late-result", PAGES, "before #994", "after #994", "finish, F994b"),
    ("window-late-result", (1,), "before #994", "after #994", "result, I10+I16"),  # F994c, in the window pool too
    ("late-result", (1,), "before #994", "after #994", "result, I16"),  # F994c
    ("late-result-mixed", PAGES, "before #994", "after #994", "result, I16"),  # F994c as a double free
    ("many-chunks-overlap", ANY, "before #994", "after #994", "result, F994d"),
    ("plain", PAGES, "before #994", "after #994", "finish, I16"),  # one release frees the open page twice
]
"""Scenario, page sizes, the checkout that has the fault, the one that has it no more, and what is found in the former."""


@pytest.mark.parametrize(("scenario", "page_sizes", "faulty", "fixed", "found"), SHOWN)
def test_a_fix_ends_what_it_is_for(
    scenario: str, page_sizes: tuple[int, ...], faulty: str, fixed: str, found: str
) -> None:
    for size in map(str, page_sizes):
        assert (EXPECTED[faulty][scenario][size], EXPECTED[fixed][scenario][size]) == (f"violates: {found}", CONFORMS)


def test_what_the_faults_do_not_touch_conforms() -> None:
    """Without overlap nothing is behind the slot that F994b strips; freeing any index of a page frees the page (F994a)."""
    assert set(EXPECTED["before #994"]["window"].values()) == {CONFORMS}
    for commit in ("before #994", "after #994"):
        assert {EXPECTED[commit]["same-twice"][size] for size in ("4", "16")} == {CONFORMS}


@pytest.mark.sglang_jax
def test_a_row_that_is_freed_between_chunks_is_not_in_the_event(recorded_on: RecordedOn) -> None:
    assert first_finding(recorded_on("before #1008"), "two-chunks-no-tree", 4).event.row is None


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", PAGES)
def test_duplicates_from_len_of_prefix_indices_leave_a_freed_page_in_the_row(
    recorded_on: RecordedOn, page_size: int
) -> None:
    """F994a: the page is freed as a whole, but the row is written anew only behind the unaligned tail."""
    found = first_finding(recorded_on("before #994"), "overtaken", page_size)
    lost, behind_it = found.pages
    page = int(lost.removeprefix("duplicate replaced by page ").removesuffix(" of free list"))
    assert page in found.event.free and page in (found.event.shared or ())
    assert behind_it.endswith(f"stands behind page {page} in the row")


@pytest.mark.sglang_jax
@pytest.mark.parametrize("commit", ("after #994", "before #1401"))
@pytest.mark.parametrize("page_size", PAGES)
def test_994_leaves_a_length_within_a_page(recorded_on: RecordedOn, commit: str, page_size: int) -> None:
    (difference,) = first_finding(recorded_on(commit), "overtaken", page_size).differences
    assert difference.name == "cache_protected_len"
    assert difference.seen % page_size and difference.expected == difference.seen // page_size * page_size


@pytest.mark.sglang_jax
@pytest.mark.parametrize(
    ("scenario", "page_size", "owner"),
    [("late-result", 1, "tree"), ("late-result-mixed", 4, "free list"), ("late-result-mixed", 16, "free list")],
)
def test_a_late_result_frees_a_slot_of_another_owner(
    recorded_on: RecordedOn, scenario: str, page_size: int, owner: str
) -> None:
    """F994c: the release hands all that is committed to the tree; of a double free the allocator drops the second."""
    found = first_finding(recorded_on("before #994"), scenario, page_size)
    (page,) = found.event.free
    assert found.pages == (f"page {page} was freed; the owner was {owner}",)


@pytest.mark.sglang_jax
@pytest.mark.parametrize("page_size", PAGES)
def test_one_release_frees_the_open_page_twice_before_994(recorded_on: RecordedOn, page_size: int) -> None:
    page, again = first_finding(recorded_on("before #994"), "plain", page_size).event.free
    assert page == again


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
        ("same-twice", "finish_plain"),
    ]:
        for page_size in ANY:
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
