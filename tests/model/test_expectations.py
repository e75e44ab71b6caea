"""Expectations: met by the rules, and each can fail."""

from __future__ import annotations

import pytest

from kvproof.model.expectations import EXPECTATIONS, INSTANCES, Expectation, check_expectations, states
from kvproof.model.oracle import Oracle
from kvproof.spec.faults import FAULTS, actions_with


def test_every_situation_is_as_expected() -> None:
    assert check_expectations() == []


def test_the_instances_may_be_explored_by_the_caller() -> None:
    oracles = [Oracle.of(*instance) for instance in INSTANCES]
    assert check_expectations([(oracle.d, states(oracle)) for oracle in oracles]) == []


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
