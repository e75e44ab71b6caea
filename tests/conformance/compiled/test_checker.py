"""The compiled checker against the interpreted one: same verdict, same events, same findings, on any trace."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal
from hypothesis import given, settings
from many_traces import broken
from model_runs import CONFIGURATIONS, DUPLICATES, OF_A_WALK, SHOWN
from run_traces import Records, edited, trace_of_draw, trace_of_steps, trace_of_walk
from trace_events import HEADER

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
    with_prefix_ids,
    write_records,
)

from kvproof.conformance.compiled import build, layout
from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.choose import Chosen, is_large
from kvproof.conformance.compiled.columns import batches
from kvproof.conformance.compiled.state import State
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Report, replay
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.model.explore import counterexample
from kvproof.spec.actions import ACTIONS, Guard, Step, prefill
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.domain import one_page
from kvproof.spec.effects import Free
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import LEDGER
from kvproof.spec.trace import STOPPED

FAULTS_OF_LEDGERS = [id for id in SHOWN if FAULTS[id].machine is LEDGER]
SOME_FAULTS = ("F22862b", "F20070", "F12224", "F22213", "S0511d")


walk_arguments = given(**OF_A_WALK)
many = settings(few, max_examples=2000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


@pytest.fixture
def small(path: Path) -> Path:
    """A trace of five events."""
    return trace_of_walk(path, 5, 1, page_size=1, row_width=4, ledgers=1)


def assert_both_say(verdict: str, path: Path, strict: bool = False) -> None:
    report = assert_same(path, strict)
    assert isinstance(report, Report) and report.verdict == verdict


def check_a_walk_and_its_corruptions(path: Path, **of_walk: Any) -> None:
    assert_both_say(CONFORMS, trace_of_draw(path, **of_walk))
    records, chance = read_records(path), random.Random(of_walk["seed"])
    if len(records) == 2:
        return  # late results alone, of no step, are no events
    for change in (with_one_change, with_one_change, with_one_change, with_an_eviction, with_an_eviction):
        write_records(path, change(records, chance))
        assert_same(path)


@few
@walk_arguments
def test_any_run_and_any_change_to_it_get_the_same_answer(tmp_path: Path, **of_walk: Any) -> None:
    check_a_walk_and_its_corruptions(tmp_path / "t.jsonl", **of_walk)


@pytest.mark.slow
@many
@walk_arguments
def test_thousands_of_runs_and_changes_get_the_same_answer(tmp_path: Path, **of_walk: Any) -> None:
    check_a_walk_and_its_corruptions(tmp_path / "t.jsonl", **of_walk)


@pytest.mark.parametrize("at_most", [15, pytest.param(1000, marks=pytest.mark.slow)], ids=["lists", "all"])
@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_a_change_of_any_field_of_any_event_gets_the_same_answer(
    config: dict[str, Any], at_most: int, path: Path
) -> None:
    """The page lists come first."""
    check_each_kind_of_change(read_records(trace_of_walk(path, 70, 21, **config)), path, at_most)


@pytest.mark.parametrize(
    "fault_id", [id if id in SOME_FAULTS else pytest.param(id, marks=pytest.mark.slow) for id in FAULTS_OF_LEDGERS]
)
def test_a_counterexample_of_a_fault_gets_the_same_diagnosis(fault_id: str, path: Path) -> None:
    if counterexample(FAULTS[fault_id]) is None:
        pytest.skip("no run of the small instances shows it")
    assert_same(broken(path, fault_id))


Change = tuple[Any, str, object]
"""A table or an object of the specification, what is exchanged in it, and for what."""


def of_rule(name: str, changed: Callable[[Any, Any, Any, Step], Step]) -> Change:
    """The rule takes another step."""
    right = ACTIONS[name]
    return ACTIONS, name, replace(right, run=lambda d, s, p: changed(d, s, p, right.run(d, s, p)))


def needs_two_tokens(d: Any, s: Any, p: Any, step: Step) -> Step:
    return replace(step, guards=(*step.guards, Guard("two tokens", d.one + d.one <= p.origin_len)))


def gives_a_token(d: Any, s: Any, p: Any, step: Step) -> Step:
    return Step(step.after.but(output_len=s.output_len + d.one))


def frees_one_page_less(self: Free, d: Any, s: Any, after: Any, apply: Any = Free.apply) -> Any:
    return apply(Free(self.start, self.end + one_page(d)), d, s, after)


EXTEND = ACTIONS["extend"]
EXTENDS_ONCE = replace(EXTEND, applies=lambda d, s: d.every(EXTEND.applies(d, s), s.prefix_len == d.zero))
HOLDS_LESS = replace(INVARIANTS["I3"], holds=lambda d, s: s.kv_allocated_len <= d.one + d.one)
CHANGES: dict[str, Change] = {
    "arrive_needs_two_tokens": of_rule("arrive", needs_two_tokens),
    "stash_gives_a_token": of_rule("stash", gives_a_token),
    "extends_once": (ACTIONS, "extend", EXTENDS_ONCE),
    "holds_less": (INVARIANTS, "I3", HOLDS_LESS),
    "frees_one_page_less": (Free, "apply", frees_one_page_less),
    "charges_too_little": (prefill, "charge", lambda d, tokens: tokens),
}


def changed_specification(monkeypatch: pytest.MonkeyPatch, of: Any, name: str, value: object) -> None:
    monkeypatch.setitem(of, name, value) if isinstance(of, dict) else monkeypatch.setattr(of, name, value)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_specification_changes_both_checkers_alike(
    change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker has no arithmetic of its own: guards, effects, invariants and what applies are the specification's."""
    paths = [
        trace_of_walk(tmp_path / f"{seed}.jsonl", 50, seed, ledgers=2, overlap=seed % 2 == 1) for seed in range(12)
    ]
    changed_specification(monkeypatch, *change)
    judge = build.plain_judge()
    shown = 0
    for path in paths:
        report = replay(path)
        stop = report.first.event.seq if report.first else None
        assert stops_at(path, judge) == stop
        shown += stop is not None
        if shown == 2:
            break
    assert shown, "no walk shows the change"


def test_a_rule_that_allows_more_is_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = read_records(trace_of_walk(path, 50, 1, ledgers=2))
    created = next(r for r in records if r.get("action") == "arrive")
    created["params"]["origin_len"] = 0
    write_records(path, [*records[: records.index(created) + 1], {"record": "end", "events": created["seq"] + 1}])
    assert stops_at(path, build.plain_judge()) == created["seq"]
    changed_specification(monkeypatch, *of_rule("arrive", lambda d, s, p, step: Step(step.after, (), step.effects)))
    assert stops_at(path, build.plain_judge()) is None


@pytest.fixture(scope="module")
def judge() -> build.Judge:
    return build.the_judge()


@few
@walk_arguments
def test_the_state_goes_over_and_comes_back(tmp_path: Path, judge: build.Judge, **of_walk: Any) -> None:
    """The loop is made to give up at random although all is clean: nothing of the state may get lost on the way."""
    path = trace_of_draw(tmp_path / "t.jsonl", **of_walk)
    chance = random.Random(of_walk["seed"])

    def fainthearted(first: int, last: int, *arrays: Any) -> tuple[int, int]:
        until = min(last, first + chance.randrange(4))
        status, at = judge(first, until, *arrays)
        return (layout.NOT_CLEAN, at) if status == layout.ALL_JUDGED and at < last else (status, at)

    assert answer_of(path, fainthearted) == answer(path, "interpreted")


def test_no_state_of_the_interpreted_checker_is_left_behind(small: Path) -> None:
    """What it remembers is in the arrays, too. With something new here, `state.py` and the loop have to follow."""
    replayer = Replayer(read_trace(small), [])
    handed_over = {
        "ledgers",
        "of_turn",
        "elsewhere",
        "ended_in",
        "late",
        "came",
        "asked",
        "batch",
        "passes",
        "book",
        "report",
    }
    fixed = {"excused", "path", "known", "d", "oracle", "limits", "_counting"}
    assert set(vars(replayer)) == handed_over | fixed
    owned = {"_owners", "_tables", "_users", "_pins", "protected", "_counts", "window", "prefixes"}
    assert set(vars(replayer.book)) == owned | {"d", "pool_pages", "rows"}
    assert set(vars(replayer.book.window)) == {"_window_of", "_behind", "pool_pages"}
    assert set(vars(replayer.book.prefixes)) == {"_above", "_behind", "_ids", "_pages", "lengths", "told"}


def test_the_loop_run_by_python_gives_the_same(path: Path) -> None:
    plain = build.plain_judge()
    for seed, config in enumerate(CONFIGURATIONS):
        assert stops_at(trace_of_walk(path, 40, seed, row_width=7, ledgers=2, **config), plain) is None
        assert answer_of(path, plain) == answer(path, "interpreted")


def test_arena_and_journal_grow(path: Path, judge: build.Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_of_walk(path, 80, 5, page_size=1, row_width=40)
    grown = []
    monkeypatch.setattr(State, "make_room", lambda self, make=State.make_room: (grown.append(1), make(self)))
    reader = read_trace(path)
    replayer = Replayer(reader, [])
    checker = CompiledChecker(replayer, judge)
    checker._state.arena, checker._state.journal = checker._state.arena[:1], checker._state.journal[:1]
    checker.follow(batches(reader), lambda _: None)
    assert grown
    assert (replayer.report.findings, checker.handed_over) == ([], 0)


def test_any_eviction_of_a_page_that_a_row_shares_gets_the_same_answer(path: Path) -> None:
    """A request builds on two pages of the tree; each page and each window page is evicted under it."""
    request = (
        ("arrive", {"origin_len": 5}),
        ("match_tree", {"matched_len": 4}),
        ("extend", {"seq_len": 5, "last": True}),
    )
    for window in (1, 3, 5):
        records = read_records(trace_of_steps(path, 2, 8, *request, window=window))
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


def test_any_page_named_in_place_of_a_duplicate_gets_the_same_answer(path: Path) -> None:
    records = read_records(trace_of_steps(path, 2, 8, *DUPLICATES))
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


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_any_other_number_of_a_prefix_gets_the_same_answer(
    config: dict[str, Any], path: Path, judge: build.Judge
) -> None:
    records = with_prefix_ids(read_records(trace_of_walk(path, 120, 8, **config)))
    assert_both_say(CONFORMS, write_records(path, records))
    assert stops_at(path, judge) is None
    told, verdicts = [record["params"] for record in records if "prefix_id" in record.get("params", {})], set()
    for params in told[:: max(1, len(told) // 8)]:
        for other in (0, params["prefix_id"] + 1000):
            was, params["prefix_id"] = params["prefix_id"], other
            report = assert_same(write_records(path, records))
            params["prefix_id"] = was
            assert isinstance(report, Report)
            verdicts.add(report.verdict)
    assert VIOLATES in verdicts or not config.get("tree", True)


def test_an_event_that_stands_in_no_column_is_judged_as_an_event(path: Path) -> None:
    records = read_records(trace_of_walk(path, 60, 12))
    for record in records[1:-1:7]:
        record.setdefault("params", {}).setdefault("pre_len", None)
    write_records(path, records)
    assert_both_say(CONFORMS, path)


@pytest.mark.parametrize("scenario", ["many-sessions", "pressure"])
def test_a_recorded_trace_gets_the_same_answer(scenario: str, path: Path, judge: build.Judge) -> None:
    pytest.importorskip("torch")
    from kvproof.conformance.adapters.reference import record_scenario

    record_scenario(scenario, path, page_size=4)
    assert_both_say(CONFORMS, path)
    assert stops_at(path, judge) is None, "a right trace needs no interpreted event"
    check_each_kind_of_change(read_records(path), path, at_most=12)


@pytest.mark.parametrize(("strict", "verdict"), [(False, CONFORMS), (True, VIOLATES)])
def test_known_deviations_are_followed_and_counted_alike(strict: bool, verdict: str, path: Path) -> None:
    told = {"known_deviations": ["S0511a"], "producer": {"name": "test", "version": "0", "target": "sglang 0.5.11"}}

    def as_of_a_server(records: Records) -> None:
        """Its recorder tells the step of each launch, which a run of the model does not have."""
        records[0].update(told)
        for record in records:
            if record.get("action") in LAUNCHES:
                record["step"] = record["seq"]

    edited(broken(path, "S0511a"), as_of_a_server)
    assert_both_say(verdict, path, strict)


def test_a_trace_that_breaks_off_is_judged_up_to_there(path: Path) -> None:
    whole = trace_of_walk(path, 30, 13, ledgers=2).read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    report = assert_same(path)
    assert isinstance(report, Report) and report.events > 0
    path.write_bytes(whole[: len(whole) // 2] + b"\n{}\n")
    assert isinstance(assert_same(path), str)


def test_a_pool_too_large_for_arrays_is_said(small: Path) -> None:
    edited(small, lambda records: records[0]["config"].update(row_width=2**40))
    assert isinstance(answer(small, "interpreted"), Report)
    assert "takes no configuration this large" in str(answer(small, "compiled"))


def test_without_numba_the_choice_says_what_to_install(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "numba" else find(name, *a))
    monkeypatch.setattr("kvproof.conformance.compiled.choose.is_large", lambda _: True)
    with pytest.raises(UserError, match=r"needs numba: pip install 'kvproof\[scale\]'"):
        replay(small, checker=Chosen("compiled"))
    assert replay(small, checker=Chosen()).verdict == CONFORMS


def test_only_a_large_trace_pays_for_the_start(path: Path) -> None:
    path.write_bytes(b" " * 2**20)
    assert not is_large(path)
    path.write_bytes(b" " * 2**25)
    assert is_large(path)


def test_a_checker_that_there_is_not_is_answered_with_those_there_are(path: Path) -> None:
    assert "did you mean compiled?" in refusal("replay", path, "--checker", "compile")


def test_a_kept_source_that_differs_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "checker.py"
    assert build._kept(path, "one = 1\n").read_text() == "one = 1\n"
    path.write_text("one = 2\n")
    assert build._kept(path, "one = 1\n").read_text() == "one = 1\n"


def test_where_nothing_can_be_kept_a_folder_of_the_process_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = build._kept(tmp_path / "file" / "checker.py", "one = 1\n")
    assert kept.read_text() == "one = 1\n"


def test_names_beyond_the_first_arrays_get_room(path: Path) -> None:
    with write_trace(path, HEADER) as writer:
        for n in range(300):
            writer.event(action="arrive", turn=f"r{n}", params={"origin_len": 1})
            writer.event(action="open", session=f"s{n}")
        writer.close(STOPPED)
    assert_both_say(CONFORMS, path)
