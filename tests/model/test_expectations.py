"""Expectations: met by the rules, and each can fail."""

from __future__ import annotations

import pytest

from kvproof.model.expectations import (
    CONFIGURED,
    EXPECTATIONS,
    INSTANCES,
    Expectation,
    check_expectations,
    situations_of,
    unmet,
)
from kvproof.model.explore import states
from kvproof.model.oracle import Oracle
from kvproof.model.prove import WITNESS_CONFIGS
from kvproof.spec.faults import FAULTS, actions_with


def test_every_situation_is_as_expected() -> None:
    assert check_expectations() == []


def test_the_instances_may_be_explored_by_the_caller() -> None:
    oracles = [Oracle.of(*instance) for instance in INSTANCES]
    assert check_expectations([(oracle.d, states(oracle)) for oracle in oracles]) == []


def test_every_kind_of_configuration_has_the_situations_that_are_named_for_it() -> None:
    assert [e for config in WITNESS_CONFIGS for e in situations_of(config)] == [
        e for situations in CONFIGURED.values() for e in situations
    ]


def test_a_situation_of_a_configuration_that_is_missed_or_met_wrongly_is_said() -> None:
    (reachable, never) = CONFIGURED["overlap, speculation 2"]
    assert unmet((reachable, never), {reachable.name: 1, never.name: 0}) == []
    assert unmet((reachable, never), {reachable.name: 0, never.name: 1}) == [
        f"{reachable.name}: expected to be reachable and is not",
        f"{never.name}: expected never and is reached",
    ]


def test_names_are_unique() -> None:
    assert len({e.name for e in EXPECTATIONS}) == len(EXPECTATIONS)


def test_where_nothing_is_explored_every_reachable_situation_is_missed() -> None:
    failures = check_expectations([])
    assert failures == [f"{e.name}: expected to be reachable and is not" for e in EXPECTATIONS if e.reachable]


@pytest.mark.parametrize(
    ("fault", "situation"),
    [
        ("F22790e", "two turns admitted"),
        ("F22790b", "a row without an owner"),
        ("F20476", "a row without an owner"),
        ("F22790d", "a checkpoint of a turn that did not finish"),
        ("F21875b", "a pre-aborted turn on the slot's row"),
    ],
)
def test_a_fault_makes_a_situation_happen_that_never_may(fault: str, situation: str) -> None:
    oracle = Oracle.of(*INSTANCES[0], actions_with(FAULTS[fault]))
    expectation = _named(situation)
    assert any(expectation.holds(oracle.d, state) for state in _some(oracle))


def _some(oracle: Oracle) -> list[object]:
    """States under faulty rules may be without end: as many as show it."""
    found = []
    for state in states(oracle):
        found.append(state)
        if len(found) == 1000:
            break
    return found


def _named(name: str) -> Expectation:
    return next(e for e in EXPECTATIONS if e.name == name)
