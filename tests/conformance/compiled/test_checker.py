"""The compiled checker against the interpreted one: same verdict, same events, same findings, on any trace."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from model_runs import CONFIGURATIONS, DUPLICATES, OF_A_WALK, SHOWN, of_one_ledger, some_walk
from typer.testing import CliRunner

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from checker_runs import (
    answer,
    answer_of,
    assert_same,
    check_each_kind_of_change,
    few,
    read_records,
    stops_at,
    with_an_eviction,
    with_one_change,
    write_records,
)

from kvproof.conformance.cli.cli import app
from kvproof.conformance.compiled import build, layout
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.choose import Chosen, is_large
from kvproof.conformance.compiled.columns import batches
from kvproof.conformance.compiled.state import State
from kvproof.conformance.drive.counterexample import save_counterexample, write_witness
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Report, replay
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.model.explore import counterexample
from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.domain import one_page
from kvproof.spec.effects import Free
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import LEDGER
from kvproof.spec.trace import Event, Header

FAULTS_OF_LEDGERS = [id for id in SHOWN if FAULTS[id].machine is LEDGER]
SOME_FAULTS = ("F22862b", "F20070", "F12224", "F22213", "S0511d")


walk_arguments = given(**OF_A_WALK)
many = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))


def check_a_walk_and_its_corruptions(
    tmp_path: Path,
    page_size: int,
    pages: int,
    beside: int,
    length: int,
    ledgers: int,
    seed: int,
    config: dict[str, Any],
) -> None:
    row_width = pages * page_size + beside % page_size + 1
    path = tmp_path / "walk.jsonl"
    write_witness(some_walk(page_size, row_width, length, ledgers, seed, **config), path, {})
    report = assert_same(path)
    assert isinstance(report, Report) and report.verdict == CONFORMS
    records, chance = read_records(path), random.Random(seed)
    for change in (with_one_change, with_one_change, with_one_change, with_an_eviction, with_an_eviction):
        write_records(path, change(records, chance))
        assert_same(path)


@few
@walk_arguments
def test_any_run_and_any_change_to_it_get_the_same_answer(tmp_path: Path, **of_walk: Any) -> None:
    check_a_walk_and_its_corruptions(tmp_path, **of_walk)


@pytest.mark.slow
@many
@walk_arguments
def test_thousands_of_runs_and_changes_get_the_same_answer(tmp_path: Path, **of_walk: Any) -> None:
    check_a_walk_and_its_corruptions(tmp_path, **of_walk)


def check_each_kind_in(config: dict[str, Any], path: Path, at_most: int) -> None:
    write_witness(some_walk(2, 9, 70, 3, 21, **config), path, {})
    check_each_kind_of_change(read_records(path), path, at_most)


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_a_change_of_any_page_list_gets_the_same_answer(config: dict[str, Any], tmp_path: Path) -> None:
    check_each_kind_in(config, tmp_path / "t.jsonl", at_most=25)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_a_change_of_any_field_of_any_event_gets_the_same_answer(config: dict[str, Any], tmp_path: Path) -> None:
    check_each_kind_in(config, tmp_path / "t.jsonl", at_most=1000)


@pytest.mark.parametrize(
    "fault_id", [id if id in SOME_FAULTS else pytest.param(id, marks=pytest.mark.slow) for id in FAULTS_OF_LEDGERS]
)
def test_a_counterexample_of_a_fault_gets_the_same_diagnosis(fault_id: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    run = counterexample(FAULTS[fault_id])
    if run is None:
        pytest.skip("no run of the small instances shows it")
    save_counterexample(run, FAULTS[fault_id], path)
    assert_same(path)


def _needs_two_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ACTIONS["arrive"]

    def run(d: Any, s: Any, p: Any) -> Step:
        step = right.run(d, s, p)
        return dataclasses.replace(step, guards=(*step.guards, Guard("two tokens", d.one + d.one <= p.origin_len)))

    monkeypatch.setitem(ACTIONS, "arrive", dataclasses.replace(right, run=run))


def _charges_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.spec.actions.prefill.charge", lambda d, tokens: tokens)


def _stash_gives_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ACTIONS["stash"]

    def run(d: Any, s: Any, p: Any) -> Step:
        return Step(right.run(d, s, p).after.but(output_len=s.output_len + d.one))

    monkeypatch.setitem(ACTIONS, "stash", dataclasses.replace(right, run=run))


def _frees_one_page_less(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Free.apply
    monkeypatch.setattr(
        Free, "apply", lambda self, d, s, after: apply(Free(self.start, self.end + one_page(d)), d, s, after)
    )


def _holds_less(monkeypatch: pytest.MonkeyPatch) -> None:
    short = dataclasses.replace(INVARIANTS["I3"], holds=lambda d, s: s.kv_allocated_len <= d.one + d.one)
    monkeypatch.setitem(INVARIANTS, "I3", short)


def _extends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ACTIONS["extend"]
    never = dataclasses.replace(right, applies=lambda d, s: d.every(right.applies(d, s), s.prefix_len == d.zero))
    monkeypatch.setitem(ACTIONS, "extend", never)


CHANGES = [
    *(_needs_two_tokens, _charges_too_little, _stash_gives_a_token),
    *(_frees_one_page_less, _holds_less, _extends_once),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_specification_changes_both_checkers_alike(
    change: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker has no arithmetic of its own: guards, effects, invariants and what applies are the specification's."""
    paths = []
    for seed in range(12):
        paths.append(tmp_path / f"{seed}.jsonl")
        write_witness(some_walk(2, 9, 50, 2, seed, overlap=seed % 2 == 1), paths[-1], {})
    change(monkeypatch)
    judge = build.plain_judge()
    stops = [stops_at(path, judge) for path in paths]
    reports = [replay(path) for path in paths]
    assert stops == [report.first.event.seq if report.first else None for report in reports]
    assert any(stop is not None for stop in stops), "no walk shows the change"


def test_a_rule_that_allows_more_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(some_walk(2, 9, 50, 2, 1), path, {})
    records = read_records(path)
    created = next(r for r in records if r.get("action") == "arrive")
    created["params"]["origin_len"] = -3
    write_records(path, [*records[: records.index(created) + 1], {"record": "end", "events": created["seq"] + 1}])
    assert stops_at(path, build.plain_judge()) == created["seq"]
    right = ACTIONS["arrive"]
    monkeypatch.setitem(
        ACTIONS, "arrive", dataclasses.replace(right, run=lambda d, s, p: Step(right.run(d, s, p).after))
    )
    assert stops_at(path, build.plain_judge()) is None


@pytest.fixture(scope="module")
def judge() -> build.Judge:
    return build.the_judge()


@few
@walk_arguments
def test_the_state_goes_over_and_comes_back(tmp_path: Path, judge: build.Judge, **of_walk: Any) -> None:
    """The loop is made to give up at random although all is clean: nothing of the state may get lost on the way."""
    page_size = of_walk["page_size"]
    row_width = of_walk["pages"] * page_size + of_walk["beside"] % page_size + 1
    path = tmp_path / "walk.jsonl"
    run = some_walk(page_size, row_width, of_walk["length"], of_walk["ledgers"], of_walk["seed"], **of_walk["config"])
    write_witness(run, path, {})
    chance = random.Random(of_walk["seed"])

    def fainthearted(first: int, last: int, *arrays: Any) -> tuple[int, int]:
        until = min(last, first + chance.randrange(4))
        status, at = judge(first, until, *arrays)
        return (layout.NOT_CLEAN, at) if status == layout.ALL_JUDGED and at < last else (status, at)

    assert answer_of(path, fainthearted) == answer(path, "interpreted")


def test_no_state_of_the_interpreted_checker_is_left_behind(tmp_path: Path) -> None:
    """What it remembers is in the arrays, too. With something new here, `state.py` and the loop have to follow."""
    path = tmp_path / "walk.jsonl"
    write_witness(some_walk(1, 4, 5, 1, 1), path, {})
    replayer = Replayer(read_trace(path), [])
    handed_over = {"ledgers", "of_turn", "elsewhere", "ended_in", "book", "report"}
    fixed = {"path", "known", "d", "oracle", "_counting"}
    assert set(vars(replayer)) == handed_over | fixed
    owned = {"_owners", "_tables", "_users", "_pins", "protected", "_counts", "window"}
    assert set(vars(replayer.book)) == owned | {"d", "pool_pages"}
    assert set(vars(replayer.book.window)) == {"_window_of", "_behind", "pool_pages"}


def test_the_loop_run_by_python_gives_the_same(tmp_path: Path) -> None:
    plain = build.plain_judge()
    for seed, config in enumerate(CONFIGURATIONS):
        path = tmp_path / "walk.jsonl"
        write_witness(some_walk(2, 7, 40, 2, seed, **config), path, {})
        assert stops_at(path, plain) is None
        assert answer_of(path, plain) == answer(path, "interpreted")


def test_arena_and_journal_grow(tmp_path: Path, judge: build.Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "walk.jsonl"
    write_witness(some_walk(1, 40, 80, 3, 5), path, {})
    grown = []
    monkeypatch.setattr(State, "make_room", lambda self, make=State.make_room: (grown.append(1), make(self)))
    reader = read_trace(path)
    replayer = Replayer(reader, [])
    checker = CompiledChecker(replayer, judge)
    checker._state.arena, checker._state.journal = checker._state.arena[:1], checker._state.journal[:1]
    checker.follow(batches(reader), lambda _: None)
    assert grown
    assert (replayer.report.findings, checker.handed_over) == ([], 0)


def test_a_trace_in_columns_gets_the_same_answer(tmp_path: Path) -> None:
    lines, columns = tmp_path / "t.jsonl", tmp_path / "t.kvtrace"
    write_witness(some_walk(2, 9, 60, 3, 11, window=2, overlap=True), lines, {})
    reader = read_trace(lines)
    with write_trace(columns, reader.header) as writer:
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)
    report = assert_same(columns)
    assert isinstance(report, Report) and report.verdict == CONFORMS


def test_any_eviction_of_a_page_that_a_row_shares_gets_the_same_answer(tmp_path: Path) -> None:
    """A request builds on two pages of the tree; each page and each window page is evicted under it."""
    path = tmp_path / "t.jsonl"
    request = (
        ("arrive", {"origin_len": 5}),
        ("match_tree", {"matched_len": 4}),
        ("extend", {"seq_len": 5, "last": True}),
    )
    for window in (1, 3, 5):
        write_witness(of_one_ledger(2, 8, *request, window=window), path, {})
        records = read_records(path)
        answers = set()
        for evicted in range(1, records[0]["config"]["pool_pages"] + 1):
            for field in ("free", "window_free"):
                event = {"record": "event", "seq": len(records) - 2, "action": "evict", field: [evicted]}
                write_records(path, [*records[:-1], event, {"record": "end", "events": len(records) - 1}])
                report = assert_same(path)
                assert isinstance(report, Report)
                answers |= {*report.first.invariants} if report.first else {"none"}
        assert {"I1", "I10", "I11", "I16"} <= answers
        assert ("I6" in answers) == (window > 1), "the window of the next token reaches the page"


def test_any_page_named_in_place_of_a_duplicate_gets_the_same_answer(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(of_one_ledger(2, 8, *DUPLICATES), path, {})
    records = read_records(path)
    inserted = records[-2]
    assert inserted["action"] == "insert" and inserted["free"] and inserted["shared"]
    verdicts = set()
    for page in range(records[0]["config"]["pool_pages"] + 2):
        inserted["shared"][0] = page
        write_records(path, records)
        report = assert_same(path)
        assert isinstance(report, Report)
        verdicts.add(report.verdict)
    assert verdicts == {CONFORMS, VIOLATES}


def test_an_event_that_stands_in_no_column_is_judged_as_an_event(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(some_walk(2, 9, 60, 3, 12), path, {})
    records = read_records(path)
    for record in records[1:-1:7]:
        record.setdefault("params", {})["note"] = None
    write_records(path, records)
    report = assert_same(path)
    assert isinstance(report, Report) and report.verdict == CONFORMS


@pytest.mark.parametrize("scenario", ["many-sessions", "pressure"])
def test_a_recorded_trace_gets_the_same_answer(scenario: str, tmp_path: Path, judge: build.Judge) -> None:
    pytest.importorskip("torch")
    from kvproof.conformance.adapters.reference import record_scenario

    path = tmp_path / "t.jsonl"
    record_scenario(scenario, path, page_size=4)
    report = assert_same(path)
    assert isinstance(report, Report) and report.verdict == CONFORMS
    assert stops_at(path, judge) is None, "a right trace needs no interpreted event"
    check_each_kind_of_change(read_records(path), path, at_most=12)


@pytest.mark.parametrize("strict", [False, True])
def test_known_deviations_are_followed_and_counted_alike(strict: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    fault = FAULTS["S0511d"]
    save_counterexample(counterexample(fault), fault, path)
    records = read_records(path)
    records[0]["known_deviations"] = [fault.id]
    write_records(path, records)
    report = assert_same(path, strict)
    assert isinstance(report, Report) and (report.verdict == VIOLATES) == strict


def test_a_trace_that_breaks_off_is_judged_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(some_walk(2, 9, 30, 2, 13), path, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    report = assert_same(path)
    assert isinstance(report, Report) and report.events > 0
    path.write_bytes(whole[: len(whole) // 2] + b"\n{}\n")
    assert isinstance(assert_same(path), str)


def test_a_pool_too_large_for_arrays_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(some_walk(1, 4, 5, 1, 1), path, {})
    records = read_records(path)
    records[0]["config"]["row_width"] = 2**40
    write_records(path, records)
    assert isinstance(answer(path, "interpreted"), Report)
    assert "takes no configuration this large" in str(answer(path, "compiled"))


def test_without_numba_the_choice_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    write_witness(some_walk(1, 4, 5, 1, 1), path, {})
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "numba" else find(name, *a))
    monkeypatch.setattr("kvproof.conformance.compiled.choose.is_large", lambda _: True)
    with pytest.raises(UserError, match=r"needs numba: pip install 'kvproof\[scale\]'"):
        replay(path, checker=Chosen("compiled"))
    assert replay(path, checker=Chosen()).verdict == CONFORMS


def test_only_a_large_trace_pays_for_the_start(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b" " * 2**20)
    assert not is_large(path)
    path.write_bytes(b" " * 2**25)
    assert is_large(path)


def test_a_checker_that_there_is_not_is_answered_with_those_there_are(tmp_path: Path) -> None:
    answered = CliRunner().invoke(app, ["replay", str(tmp_path / "t.jsonl"), "--checker", "compile"])
    assert answered.exit_code == 2
    assert "did you mean compiled?" in str(answered.exception) + answered.output


def test_a_kept_source_that_differs_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "checker.py"
    assert build._kept(path, "one = 1\n").read_text() == "one = 1\n"
    path.write_text("one = 2\n")
    assert build._kept(path, "one = 1\n").read_text() == "one = 1\n"


def test_where_nothing_can_be_kept_a_folder_of_the_process_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = build._kept(tmp_path / "file" / "checker.py", "one = 1\n")
    assert kept.read_text() == "one = 1\n"


def test_names_beyond_the_first_arrays_get_room(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    header = Header.model_validate(
        {
            "spec": "1",
            "producer": {"name": "test", "version": "1", "target": "test"},
            "config": {"page_size": 1, "pool_pages": 4, "rows": 1, "row_width": 4},
        }
    )
    with write_trace(path, header) as writer:
        for n in range(300):
            writer.event(action="arrive", turn=f"r{n}", params={"origin_len": 1})
            writer.event(action="open", session=f"s{n}")
    report = assert_same(path)
    assert isinstance(report, Report) and report.verdict == CONFORMS
