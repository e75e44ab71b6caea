"""A row or a page that a step in flight uses goes to the batch behind it, not to a launch of its own batch: by either checker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from run_traces import Records, edited

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.batch_in_flight import BatchInFlight
from kvproof.conformance.replay.replay import CONFORMS, Finding, Report, replay
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.serialization import restore_state, state_as_data
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.batch import LAUNCHES, may_be_given
from kvproof.spec.trace import Event

pytest.importorskip("torch")
pytest.importorskip("numba")
from kvproof.conformance.adapters.reference import record_scenario

Taken = tuple[int, Event]
"""The event at which a row or a page was let go of, and the launch of the batch behind that takes it."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right trace with overlap, in which the next batch often takes what the last one uses."""
    return storm(tmp_path_factory.mktemp("recorded") / "storm.jsonl", overlap=True)


def storm(path: Path, **settings: bool) -> Path:
    return record_scenario("storm", path, page_size=4, settings={"forward": "none", **settings}).path


def judged(path: Path) -> Report:
    report = replay(path, checker=Chosen("interpreted"))
    assert replay(path, checker=Chosen("compiled")) == report
    return report


def found(path: Path) -> Finding:
    first = judged(path).first
    assert first is not None
    return first


def first_of_next_batch(path: Path, takes: Callable[[BatchInFlight, Event], int]) -> Taken:
    """`takes`: the number of the event at which the batch came to use what the launch takes; 0: it takes nothing of it."""
    replayer = Replayer(read_trace(path), [])
    for line, event in read_trace(path):
        batch = replayer.batch
        if (
            event.action in LAUNCHES
            and batch.begin_of(event) == event.seq + 1
            and takes(batch, event) >= batch.first > 0
        ):
            return takes(batch, event) - 1, event
        assert replayer.feed(line, event) is None
    raise LookupError("no batch takes what the one before it uses")


def a_page(batch: BatchInFlight, launch: Event) -> int:
    return max((batch.pages[page] for page in batch.taken_over(launch)), default=0)


def a_row(batch: BatchInFlight, launch: Event) -> int:
    is_new = launch.shared is not None  # the matched prefix is written into it
    return batch.rows.get(launch.row or 0, 0) if is_new else 0


def joined(taken: Taken) -> Callable[[Records], object]:
    """The launch is of the batch that uses what it takes."""
    since, launch = taken

    def change(records: Records) -> None:
        step = next(r["step"] for r in reversed(records[1 : since + 2]) if r["action"] in LAUNCHES)
        for record in records[since + 1 : launch.seq + 2]:
            record["step"] = step

    return change


def test_the_batch_behind_may_take_what_a_step_in_flight_uses(path: Path) -> None:
    """It writes later. So SGLang's overlap does it, and each such launch is counted."""
    assert judged(path).verdict == CONFORMS
    assert first_of_next_batch(path, a_row)
    replayer, counted = Replayer(read_trace(path), []), 0
    for line, event in read_trace(path):
        if isinstance(event, Event) and event.action in LAUNCHES:
            takes, before = bool(replayer.batch.taken_over(event)), replayer.report.coverage.invariants["I6"]
            replayer.feed(line, event)
            assert replayer.report.coverage.invariants["I6"] == before + takes
            counted += takes
        elif isinstance(event, Event):
            replayer.feed(line, event)
    assert counted


def test_no_launch_takes_a_page_of_its_own_batch(path: Path, tmp_path: Path) -> None:
    since, launch = taken = first_of_next_batch(path, a_page)
    finding = found(edited(path, joined(taken), tmp_path / "t.jsonl"))
    assert finding.event.seq == launch.seq
    assert finding.invariants.keys() == {"I6"}
    page = finding.pages[0].split()[1]
    assert finding.pages[0] == f"page {page} is handed out in step {finding.event.step}, whose batch still uses it"
    assert finding.cause == f"event {since} let go of page {page} while its row was in this step"


def test_no_launch_takes_a_row_of_its_own_batch(path: Path, tmp_path: Path) -> None:
    since, launch = taken = first_of_next_batch(path, a_row)
    finding = found(edited(path, joined(taken), tmp_path / "t.jsonl"))
    assert finding.event.seq == launch.seq
    assert "I5" in finding.invariants
    assert f"row {launch.row} is launched twice in step {finding.event.step}" in finding.pages[0]
    assert finding.cause == f"event {since} launched row {launch.row} in this step"


def test_a_launch_without_a_step_is_of_no_known_batch(path: Path, tmp_path: Path) -> None:
    _, launch = first_of_next_batch(path, a_page)
    assert (
        judged(edited(path, lambda records: records[launch.seq + 1].pop("step"), tmp_path / "t.jsonl")).verdict
        == CONFORMS
    )


def test_without_overlap_a_prepared_step_may_never_run(tmp_path: Path) -> None:
    """The reference retracts a request after its step was prepared, and others of the same step take its pages."""
    path = record_scenario("storm", tmp_path / "t.jsonl", page_size=1, settings={"forward": "none"}).path
    report = judged(path)
    events = [event for _, event in read_trace(path) if isinstance(event, Event)]
    taken = [(event.step, page) for event in events if event.action in LAUNCHES for page in event.alloc]
    assert len(taken) > len(set(taken)), "a page is taken twice in one step"
    assert report.verdict == CONFORMS


def test_a_part_with_its_state_finds_it_too(path: Path, tmp_path: Path) -> None:
    """What the batch in flight uses is part of the state."""
    since, launch = taken = first_of_next_batch(path, a_page)
    wrong = edited(path, joined(taken), tmp_path / "t.jsonl")
    first, second = (Replayer(read_trace(wrong), []) for _ in range(2))
    events = [(line, event) for line, event in read_trace(wrong) if isinstance(event, Event)]
    for line, event in events[: launch.seq]:
        assert first.feed(line, event) is None
    restore_state(second, state_as_data(first))
    assert second.batch == first.batch and since + 1 in second.batch.pages.values()
    finding = second.feed(*events[launch.seq])
    assert finding is not None and finding.invariants.keys() == {"I6"}


def launch(seq: int, step: int | None, row: int, *pages: int) -> Event:
    return Event(seq=seq, step=step, action="decode", turn="t", row=row, alloc=pages)


def leave(seq: int, action: str = "abort", free: tuple[int, ...] = (7,)) -> Event:
    return Event.model_validate({"seq": seq, "action": action, "turn": "t", "free": free})


def test_what_was_used_before_the_batch_may_be_given() -> None:
    assert may_be_given(0, 1) and may_be_given(4, 5)
    assert not may_be_given(5, 5) and not may_be_given(6, 5)


def test_pages_of_the_tree_are_read_by_the_step_too() -> None:
    """The turn ends, its prefix is evicted at once, and a launch of its own batch gets the page."""
    batch = BatchInFlight()
    batch.launch(launch(0, 1, 3), 3)
    batch.let_go(leave(1, free=()), 3, [7, 8])
    assert [r.invariant for r in batch.reused_by(launch(2, 1, 4, 8), 4)] == ["I6"]
    assert not [*batch.reused_by(launch(2, 2, 4, 8), 4)]


def test_duplicates_are_given_back_while_the_next_step_reads_them() -> None:
    batch = BatchInFlight()
    batch.launch(launch(0, 1, 3), 3)
    batch.let_go(leave(1, "insert", free=()), 3, [7])
    assert not batch.pages, "the row keeps its pages"
    batch.let_go(leave(1, "insert"), 3, [7])
    assert [r.invariant for r in batch.reused_by(launch(2, 1, 4, 7), 4)] == ["I6"]


def test_a_known_result_ends_the_use() -> None:
    batch = BatchInFlight()
    batch.launch(launch(0, 1, 3), 3)
    batch.know_results(3)
    batch.let_go(leave(1), 3, [7])
    assert not [*batch.reused_by(launch(2, 1, 3, 7), 3)]


def test_a_page_of_two_batches_before_is_forgotten() -> None:
    batch = BatchInFlight()
    batch.launch(launch(0, 1, 3), 3)
    batch.let_go(leave(1), 3, [7, 8])
    batch.launch(launch(2, 2, 4, 7), 4)
    assert batch.pages == {8: 2}
    batch.launch(launch(3, 3, 5), 5)
    assert not batch.pages
