"""The bounded search: what a small instance holds, which run is shortest, and what it says when a rule is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvproof.model.explore import (
    TooManyStatesError,
    counterexample,
    first_steps,
    not_taken,
    parameters,
    reach,
    shortest_run,
    shortest_run_of,
    successors,
)
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.spec.actions import ACTIONS, Step
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER, MACHINES
from kvproof.spec.state import NONE, Ledger, pristine


def test_parameters_are_all_values_of_the_instance_and_the_usual_ones_come_first() -> None:
    chosen = list(parameters(ACTIONS["finish_plain"], 3))
    assert len(chosen) == 4 * 2
    assert [p["inserted"] for p in chosen[:2]] == [True, False]
    assert list(parameters(ACTIONS["stash"], 3)) == [{}]


def test_of_nothing_a_session_is_opened_or_a_request_arrives() -> None:
    oracle = Oracle.of(1, 3)
    steps = list(successors(oracle, pristine(oracle.d)))
    assert {s.outcome.action.name for s in steps} == {"open", "arrive", "check"}
    arrivals = [s.params["origin_len"] for s in steps if s.outcome.action.name == "arrive"]
    assert arrivals == [1, 2, 3], "no input is longer than a row, none is empty"
    assert all(not s.outcome.failed_guards for s in steps)


def test_every_reached_state_is_visited_once_and_from_each_a_turn_can_end() -> None:
    met: list[Ledger] = []
    found = reach(1, 3, visit=lambda d, s: met.append(s))
    assert found.states == len(met) == len(set(met))
    assert pristine(Integers(1, 3)) in met
    assert found.stuck == 0


def test_a_turn_that_no_run_can_end_is_counted() -> None:
    never = {name: rule for name, rule in ACTIONS.items() if rule.event not in ("finish", "abort", "match")}
    found = reach(1, 3, never)
    assert found.stuck > 0


def test_a_session_that_no_run_can_close_is_counted() -> None:
    """Every turn ends. A close that came while one ran waits for ever."""
    idle = dataclasses.replace(ACTIONS["close"], run=lambda d, s, p: Step(s))
    assert reach(1, 3, {**ACTIONS, "close": idle}, tree=False).stuck > 0


def test_what_is_never_taken_is_named() -> None:
    assert not_taken(1, 3, ACTIONS, ["finish", "retract"]) == []
    assert not_taken(1, 3, ACTIONS, ["finish", "evict_window"]) == ["evict_window"]


def test_states_without_end_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.model.explore.MOST_STATES", 100)
    with pytest.raises(TooManyStatesError, match="more than 100 states"):
        reach(1, 3)
    with pytest.raises(TooManyStatesError, match="more than 100 states"):
        not_taken(1, 3, ACTIONS, ["evict_window"])
    assert shortest_run_of(ACTIONS, 1, 3) is None


def test_a_rule_that_breaks_an_invariant_ends_the_search() -> None:
    def forgets(d: Any, s: Any, p: Any) -> Step:
        return Step(s.but(closing=True, turns=s.turns + 1))

    wrong = {**ACTIONS, "defer_close": dataclasses.replace(ACTIONS["defer_close"], run=forgets)}
    with pytest.raises(AssertionError):
        reach(1, 3, wrong)


def test_the_right_rules_have_no_run_that_breaks_anything() -> None:
    assert shortest_run_of(ACTIONS, 1, 3) is None


@pytest.mark.parametrize("fault_id", ["F22213", "F22862a", "M19"])
def test_no_run_with_fewer_steps_shows_a_fault(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    run = counterexample(fault)
    assert run is not None and fault.breaks[0] in run.broken
    oracle = Oracle.of(run.page_size, run.row_width, {**fault.machine.actions, **fault.deviations}, **run.config)
    frontier = {fault.machine.start(oracle.d)}
    for _ in range(len(run.steps) - 1):
        steps = [step for state in frontier for step in successors(oracle, state)]
        assert not any(fault.breaks[0] in s.outcome.broken(oracle.d, fault.machine.invariants) for s in steps)
        frontier = {step.outcome.after for step in steps}


def test_steps_of_a_run_follow_each_other_from_the_start() -> None:
    run = shortest_run(FAULTS["F22862b"], 2, 4)
    states = [pristine(Integers(2, 4)), *(step.outcome.after for step in run.steps)]
    assert [step.outcome.before for step in run.steps] == states[:-1]


def test_a_step_that_never_comes_is_given_up() -> None:
    admission = next(m for m in MACHINES if m.name == "admission")
    assert first_steps(Oracle.of(1, 3, admission.actions), admission, lambda step: False) is None


def test_a_turn_is_over_where_a_search_counts_it_as_ended() -> None:
    steps = first_steps(
        Oracle.of(1, 3), LEDGER, lambda step: step.outcome.before.phase != NONE and step.outcome.after.phase == NONE
    )
    assert steps[-1].outcome.action.name == "abort_queued"
