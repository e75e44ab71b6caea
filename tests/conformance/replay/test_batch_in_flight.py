"""A row or a page that a step in flight uses goes to the batch behind it, not to a launch of its own batch; steps go up, and one
begins when no result but those of the step before it is awaited. By either checker."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_traces import Records, edited

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.batch_in_flight import BatchInFlight, may_begin
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report, replay
from kvproof.conformance.replay.replayer import CONTRADICTS, Replayer
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


def test_a_launch_without_a_step_is_of_no_known_batch_and_its_recorder_tells_one(path: Path, tmp_path: Path) -> None:
    _, launch = first_of_next_batch(path, a_page)
    report = judged(edited(path, lambda records: records[launch.seq + 1].pop("step"), tmp_path / "t.jsonl"))
    assert report.first is None
    assert report.verdict == INCOMPLETE
    assert "step (1 times)" in report.why


def launches_of(records: Records) -> Records:
    return [record for record in records if record.get("action") in LAUNCHES]


def each_launch_alone(records: Records) -> None:
    """Each launch has a step of its own, so no batch is left to be asked about."""
    for step, record in enumerate(launches_of(records)):
        record["step"] = step


def one_goes_back(records: Records) -> None:
    launches = launches_of(records)
    later = next(record for record in launches[len(launches) // 2 :] if record["step"] > launches[0]["step"])
    later["step"] = launches[0]["step"] - 1


def all_in_one(records: Records) -> None:
    for record in launches_of(records):
        record["step"] = 1


STEPS = {
    "each launch alone": (each_launch_alone, "although the result of turn"),
    "one goes back": (one_goes_back, "the numbers of steps go up"),
    "all in one": (all_in_one, "twice in step 1"),
}


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize(("change", "sentence"), STEPS.values(), ids=STEPS)
def test_steps_that_no_scheduler_launches_violate(
    change: Callable[[Records], None], sentence: str, overlap: bool, tmp_path: Path
) -> None:
    report = judged(edited(storm(tmp_path / "right.jsonl", overlap=overlap), change, tmp_path / "t.jsonl"))
    assert report.verdict == VIOLATES
    assert report.first is not None and report.first.rule == CONTRADICTS
    assert sentence in report.first.pages[0]


@pytest.mark.parametrize("seed", range(12))
def test_any_change_of_steps_and_causes_gets_the_same_answer(seed: int, path: Path, tmp_path: Path) -> None:
    chance = random.Random(seed)

    def change(records: Records) -> None:
        launches = launches_of(records)
        chosen = chance.randrange(1, len(launches))
        by = chance.choice((-2, -1, 1, 2, None))
        for record in launches[chosen : chosen + chance.choice((1, 2, 9))]:
            if by is None:
                del record["step"]
            else:
                record["step"] += by
        for result in chance.sample([r for r in records if r.get("action") == "result"], 3):
            result["cause"] = chance.choice(launches[: chosen + 9])["seq"]

    report = judged(edited(path, change, tmp_path / "t.jsonl"))  # both checkers, and both say the same
    assert (report.verdict == VIOLATES) == (report.first is not None)


def with_causes(records: Records) -> None:
    """Results name the launch that they are of, in order. Those of chunks need not come, nor those of a retracted turn."""
    launches: dict[str, list[int]] = {}
    retracted = {record["turn"] for record in records if record.get("action") == "retract"}
    for record in records:
        if record.get("turn") in retracted:
            continue
        if record.get("action") in LAUNCHES and record.get("params", {}).get("last") is not False:
            launches.setdefault(record["turn"], []).append(record["seq"])
        elif record.get("action") == "result" and launches.get(record["turn"]):
            record["cause"] = launches[record["turn"]].pop(0)


def test_a_result_may_name_the_launch_that_it_is_of(path: Path, tmp_path: Path) -> None:
    assert judged(edited(path, with_causes, tmp_path / "t.jsonl")).verdict == CONFORMS


def of_another(result: dict[str, Any], launches: Records) -> int:
    return next(r["seq"] for r in reversed(launches) if r["turn"] != result["turn"])


def of_a_result_that_is_known(result: dict[str, Any], launches: Records) -> int:
    return [r["seq"] for r in launches if r["turn"] == result["turn"]][-3]


def of_no_launch(result: dict[str, Any], launches: Records) -> int:
    return launches[-1]["seq"] - 1


@pytest.mark.parametrize("cause", [of_another, of_a_result_that_is_known, of_no_launch])
def test_a_late_result_is_of_a_launch_of_its_turn_in_flight(
    cause: Callable[[dict[str, Any], Records], int], path: Path, tmp_path: Path
) -> None:
    def change(records: Records) -> None:
        with_causes(records)
        result = next(r for r in records if "cause" in r and r.get("after", {}).get("output_len", 0) > 3)
        result["cause"] = cause(result, launches_of(records[: result["seq"] + 1]))

    finding = found(edited(path, change, tmp_path / "t.jsonl"))
    assert finding.rule == CONTRADICTS
    assert (
        f"event {finding.event.cause}, which launched no step of turn {finding.event.turn} in flight"
        in finding.pages[0]
    )


def test_only_a_result_has_a_cause(path: Path, tmp_path: Path) -> None:
    change: Callable[[Records], object] = lambda records: launches_of(records)[3].update(cause=0)  # noqa: E731
    assert found(edited(path, change, tmp_path / "t.jsonl")).pages == (
        "cause at an event 'decode': only result may have it",
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


def put(batch: BatchInFlight, launch: Event) -> None:
    batch.launch(launch, gives_a_token=True)
    batch.use(launch, launch.row or 0)


def test_pages_of_the_tree_are_read_by_the_step_too() -> None:
    """The turn ends, its prefix is evicted at once, and a launch of its own batch gets the page."""
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.let_go(leave(1, free=()), 3, [7, 8], [])
    assert [r.invariant for r in batch.reused_by(launch(2, 1, 4, 8), 4)] == ["I6"]
    assert not [*batch.reused_by(launch(2, 2, 4, 8), 4)]


def test_duplicates_are_given_back_while_the_next_step_reads_them() -> None:
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.let_go(leave(1, "insert", free=()), 3, [7], [])
    assert not batch.pages, "the row keeps its pages"
    batch.let_go(leave(1, "insert"), 3, [7], [])
    assert [r.invariant for r in batch.reused_by(launch(2, 1, 4, 7), 4)] == ["I6"]


def test_window_pages_are_read_by_the_step_too() -> None:
    """Those of a turn that leaves, and those that leave the window of one that runs."""
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.let_go(leave(1), 3, [7], [5])
    batch.let_go(leave(2, "window", free=()), 3, [], [6])
    for window in (5, 6):
        taken = launch(3, 1, 4, 9).model_copy(update={"window_alloc": (window,)})
        assert [r.sentence for r in batch.reused_by(taken, 4)] == [
            f"window page {window} is handed out in step 1, whose batch still uses it"
        ]
        assert not [*batch.reused_by(taken.model_copy(update={"step": 2}), 4)]
    put(batch, launch(4, 2, 4, 9).model_copy(update={"window_alloc": (5,)}))
    assert batch.windows == {6: 3}
    put(batch, launch(5, 3, 5))
    assert not batch.windows


def test_a_known_result_ends_the_use() -> None:
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.know_results(3)
    batch.let_go(leave(1), 3, [7], [])
    assert not [*batch.reused_by(launch(2, 1, 3, 7), 3)]


def test_a_page_of_two_batches_before_is_forgotten() -> None:
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.let_go(leave(1), 3, [7, 8], [])
    put(batch, launch(2, 2, 4, 7))
    assert batch.pages == {8: 2}
    put(batch, launch(3, 3, 5))
    assert not batch.pages


def test_a_retracted_turn_may_be_launched_again_in_its_step_without_overlap() -> None:
    """The step that was prepared for it never ran."""
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    batch.leave("t", overlap=False)
    put(batch, launch(1, 1, 3))
    assert not [*batch.runs_twice("t", overlap=False)]
    put(batch, launch(2, 1, 3))
    assert [*batch.runs_twice("t", overlap=False)] == ["turn t runs twice in step 1: events 1 and 2 launched it"]


def test_results_of_the_step_before_are_awaited_only_with_overlap() -> None:
    assert may_begin(True, 0, 5) and not may_begin(True, 1, 0)
    assert may_begin(False, 0, 0) and not may_begin(False, 0, 1)


def test_where_a_step_is_not_told_it_is_not_known_whose_results_are_awaited() -> None:
    batch = BatchInFlight()
    put(batch, launch(0, 1, 3))
    put(batch, launch(1, None, 4).model_copy(update={"turn": "u"}))
    assert not batch.awaited
