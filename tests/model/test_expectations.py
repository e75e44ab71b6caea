"""Each expectation can fail. That the rules meet all is a part of the proof (`test_prove.py`)."""

from __future__ import annotations

from itertools import islice

import pytest

from kvproof.model import expectations
from kvproof.model.expectations import CONFIGURED, EXPECTATIONS, INSTANCES, check_expectations, situations_of, unmet
from kvproof.model.explore import states
from kvproof.model.oracle import Oracle
from kvproof.model.prove import WITNESS_CONFIGS
from kvproof.spec.faults import FAULTS, actions_with


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


def test_where_nothing_is_explored_every_reachable_situation_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "INSTANCES", ())
    failures = check_expectations()
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
    (never,) = (e for e in EXPECTATIONS if e.name == situation)
    # States under faulty rules may be without end: as many as show it.
    assert any(never.holds(oracle.d, state) for state in islice(states(oracle), 1000))
