"""The bounded search: what a small instance holds, which run is shortest, and what it says when a rule is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvproof.model.compiled.machine_code import is_installed
from kvproof.model.explore import (
    Compiled,
    Interpreted,
    Search,
    TooManyStatesError,
    counterexample,
    explored_whole,
    first_steps,
    shortest_run,
    shortest_run_of,
    states,
    successors,
    the_search,
)
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.model.small_instances import CONFIGS, SMALL, parameters, said
from kvproof.spec.actions import ACTIONS, Step
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER, MACHINES
from kvproof.spec.state import NONE, pristine

needs_a_compiler = pytest.mark.skipif(not is_installed(), reason="llvmlite is not installed")
SMALLEST = Integers(1, 3)
NOTHING_IS_WRONG = dataclasses.replace(LEDGER, invariants={})


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


@pytest.fixture(params=[Interpreted, pytest.param(Compiled, marks=needs_a_compiler)])
def kind(request: pytest.FixtureRequest) -> type[Search]:
    return request.param


def test_every_state_is_reached_once_and_from_each_a_turn_can_end(kind: type[Search]) -> None:
    met = list(states(Oracle.of(1, 3)))
    found = kind().whole(SMALLEST, [lambda d, s: d.true, lambda d, s: s.rows == 1, lambda d, s: d.false])
    assert found.states == len(met) == len(set(met))
    assert found.met == [len(met), sum(s.rows for s in met), 0]
    assert found.stuck == 0


def test_a_turn_that_no_run_can_end_is_counted(kind: type[Search]) -> None:
    never = {name: rule for name, rule in ACTIONS.items() if rule.event not in ("finish", "abort", "match")}
    assert kind(never).whole(SMALLEST).stuck > 0


def test_a_session_that_no_run_can_close_is_counted(kind: type[Search]) -> None:
    """Every turn ends. A close that came while one ran waits for ever."""
    close = ACTIONS["close"]
    forgetful = dataclasses.replace(close, applies=lambda d, s: d.every(close.applies(d, s), d.no(s.closing)))
    assert kind({**ACTIONS, "close": forgetful}).whole(Integers(1, 3, tree=False)).stuck > 0


def test_more_states_than_a_search_goes_through_end_it(kind: type[Search], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "most_states", 100)
    with pytest.raises(TooManyStatesError, match="more than 100 states"):
        kind().whole(SMALLEST)
    assert kind().shortest(SMALLEST) is None
    monkeypatch.setattr(kind, "most_states", 1494)
    assert kind().whole(SMALLEST).states == 1494


@needs_a_compiler
@pytest.mark.parametrize("config", CONFIGS, ids=said)
def test_both_searches_meet_the_same_states_first(config: dict[str, Any]) -> None:
    d = Integers(2, 4, **config)
    first = Interpreted().first_states(d, 300)
    assert first == Compiled().first_states(d, 300)
    assert len(first) == 300
    assert all(source < place for place, (_, source) in enumerate(first[1:], 1))


def test_a_number_without_end_ends_the_search(kind: type[Search]) -> None:
    """Only this rule is there. A state with 128 is no state."""
    anywhere = dataclasses.replace(ACTIONS["evict_window"], applies=lambda d, s: d.true, params={})
    counts = dataclasses.replace(anywhere, run=lambda d, s, p: Step(s.but(pending=s.pending + 1)))
    with pytest.raises(TooManyStatesError, match="a number beyond 127"):
        kind({"evict_window": counts}, NOTHING_IS_WRONG).whole(SMALLEST)
    again = dataclasses.replace(
        anywhere, run=lambda d, s, p: Step(s.but(pending=d.where(s.pending == 127, 0, s.pending + 1)))
    )
    assert kind({"evict_window": again}, NOTHING_IS_WRONG).whole(SMALLEST).states == 128


def test_a_rule_that_breaks_an_invariant_ends_the_search(kind: type[Search]) -> None:
    def forgets(d: Any, s: Any, p: Any) -> Step:
        return Step(s.but(closing=d.true, turns=s.turns + 1))

    wrong = {**ACTIONS, "defer_close": dataclasses.replace(ACTIONS["defer_close"], run=forgets)}
    with pytest.raises(AssertionError, match="marker is set iff"):
        kind(wrong).whole(SMALLEST)


def test_without_a_compiler_the_rules_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.model.explore.is_installed", lambda: False)
    assert type(the_search()) is Interpreted
    assert explored_whole() == (SMALL,)


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
