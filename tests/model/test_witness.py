"""Runs of the model as traces: those of the right rules conform, whatever they are; those of a fault are flagged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from model_runs import CONFIGURATIONS, OF_A_WALK, of_one_ledger, walk

from kvproof.conformance.drive.counterexample import save_counterexample, write_witness
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.model.explore import counterexample
from kvproof.model.witness import LATE_RESULTS, Witness, witness, witness_of
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS

REAL = [f.id for f in FAULTS.values() if f.kind != "mutation"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**OF_A_WALK)
def test_any_run_of_the_right_rules_is_a_trace_that_conforms(
    page_size: int,
    pages: int,
    beside: int,
    length: int,
    ledgers: int,
    seed: int,
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    """Model and replay against each other: they share the rules, but neither the pages nor the names."""
    row_width = pages * page_size + beside % page_size + 1
    path = tmp_path / "walk.jsonl"
    steps = list(walk(page_size, row_width, length, ledgers, seed, **config))
    write_witness(witness(steps, page_size, row_width, **config), path, {})
    report = replay(path)
    assert report.verdict == CONFORMS, report.first
    assert report.events >= sum(taken.outcome.action.name not in LATE_RESULTS for _, taken in steps)


def test_random_runs_take_every_action() -> None:
    taken: Counter[str] = Counter()
    for seed in range(210):
        config = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
        taken.update(step.outcome.action.name for _, step in walk(1 + seed % 2, 6, 80, 1, seed, **config))
        if len(taken) == len(ACTIONS):
            break
    assert set(ACTIONS) == set(taken)


@pytest.mark.parametrize("fault_id", REAL)
def test_the_replay_flags_a_saved_counterexample_and_names_the_fault(fault_id: str, tmp_path: Path) -> None:
    path, fault = tmp_path / "t.jsonl", FAULTS[fault_id]
    events = save_counterexample(counterexample(fault), fault, path)
    report = replay(path)
    assert report.verdict == VIOLATES
    assert fault_id in {f.id for f in report.first.explained_by}
    # A fault of several actions is seen at the first of them, before its harm is done.
    assert report.first.event.seq == events - 1 or fault.also


@pytest.mark.parametrize(
    ("mutation", "event", "seen"),
    [
        ("M13", "check", {"evictable + protected": (2, 3), "protected": (0, 1)}),  # what was unlocked is still counted
        ("M19", "check", {"protected": (0, 1)}),  # nobody holds the page that was matched
        ("M24", "finish", {"freed pages": ([1], [2])}),  # of the other request
    ],
)
def test_what_the_small_machines_do_wrong_shows_in_what_it_leads_to(
    mutation: str, event: str, seen: dict[str, Any], tmp_path: Path
) -> None:
    save_counterexample(counterexample(FAULTS[mutation]), FAULTS[mutation], tmp_path / "t.jsonl")
    first = replay(tmp_path / "t.jsonl").first
    assert first is not None and first.event.action == event
    assert {d.name: (d.expected, d.seen) for d in first.differences} == seen
    assert not first.explained_by  # by no real fault


def test_what_no_event_tells_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    """What an admission is charged: a replay would accept the trace, so it would be none of a fault."""
    with pytest.raises(UserError, match="no event tells what it does wrong"):
        save_counterexample(counterexample(FAULTS["M18"]), FAULTS["M18"], tmp_path / "t.jsonl")
    assert not list(tmp_path.iterdir())


def test_the_same_counterexample_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_counterexample(counterexample(FAULTS["F22790a"]), FAULTS["F22790a"], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_saved_counterexample_says_where_it_comes_from(tmp_path: Path) -> None:
    save_counterexample(counterexample(FAULTS["F20070"]), FAULTS["F20070"], tmp_path / "t.jsonl")
    header = read_trace(tmp_path / "t.jsonl").header
    assert (header.producer.name, header.producer.target) == ("kvproof-model", "model")
    assert header.extra == {"fault": "F20070", "breaks": ["I12"]}
    assert (header.config.page_size, header.config.row_width) == (1, 3)


def test_without_a_run_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no trace of F20070"):
        save_counterexample(None, FAULTS["F20070"], tmp_path / "t.jsonl")


def test_what_a_run_matches_in_the_tree_another_request_left_there() -> None:
    trace = of_one_ledger(
        2,
        8,
        ("arrive", {"origin_len": 5}),
        ("match_tree", {"matched_len": 4}),
        ("extend", {"seq_len": 5, "last": True}),
    )
    assert [e.action for e in trace.events] == [
        *("arrive", "arrive", "match", "extend", "result", "finish", "match", "extend")
    ]
    assert trace.events[3].alloc == (1, 2)
    assert trace.events[-1].shared == (1, 2)
    assert trace.events[-1].alloc == (3,)


def test_a_detached_turn_goes_on_as_an_ordinary_request() -> None:
    turn = {"origin_len": 3, "too_long": False, "logprob": False}
    trace = of_one_ledger(
        1,
        8,
        ("open", {}),
        ("create", turn),
        ("match_tree", {"matched_len": 0}),
        ("extend", {"seq_len": 3, "last": True}),
        ("result", {"tokens": 1}),
        ("finish", {"finished_len": 1}),
        ("create", {"origin_len": 1, "too_long": True, "logprob": False}),
        ("detach", {}),
    )
    *_, detached, arrives, matches = trace.events
    assert (detached.session, detached.after.attached, detached.after.prefix_len) == ("session-1", False, None)
    assert [(e.action, e.session, e.turn) for e in (arrives, matches)] == [
        ("arrive", None, detached.turn),
        ("match", None, detached.turn),
    ]


def test_a_turn_that_comes_back_refused_was_refused_before() -> None:
    run = counterexample(FAULTS["S0511d"])
    events = witness_of(run).events
    refused = next(e for e in events if e.params.get("admitted") is False)
    assert events[-1].turn == refused.turn


def test_a_late_result_is_that_of_its_turn_not_of_the_one_that_runs_now(tmp_path: Path) -> None:
    """The step in flight when a turn ends brings its result when the session's next turn already waits for its own."""
    turn = {"too_long": False, "logprob": False}
    trace = of_one_ledger(
        1,
        8,
        ("open", {}),
        ("create", {"origin_len": 1, **turn}),
        ("match_tree", {"matched_len": 0}),
        ("extend", {"seq_len": 1, "last": True}),
        ("result", {"tokens": 1}),
        ("decode", {}),
        ("finish", {"finished_len": 1}),
        ("create", {"origin_len": 3, **turn}),
        ("match_slot", {}),
        ("extend", {"seq_len": 3, "last": True}),
        ("result_of_ended", {}),
        ("result", {"tokens": 1}),
        overlap=True,
    )
    events = list(trace.events)
    late = max(n for n, e in enumerate(events) if e.action == "result") - 1
    assert events[late].turn == next(e for e in events if e.action == "finish").turn
    write_witness(trace, tmp_path / "t.jsonl", {})
    report = replay(tmp_path / "t.jsonl")
    assert report.verdict == CONFORMS, report.first
    assert report.actions["result_of_ended"] == 1
    # The same result, said to be the running turn's, is one too many.
    events[late] = events[late].model_copy(update={"turn": events[-1].turn})
    write_witness(Witness(trace.config, tuple(events)), tmp_path / "t.jsonl", {})
    assert replay(tmp_path / "t.jsonl").verdict == VIOLATES
