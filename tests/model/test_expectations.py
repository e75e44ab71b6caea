"""Each expectation can fail. That the rules meet all is a part of the proof (`test_prove.py`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from unittest.mock import Mock

import pytest

from kvproof.model import expectations
from kvproof.model.expectations import CONFIGURED, EXPECTATIONS, explored, situations_of, unmet, unmet_in
from kvproof.model.explore import Compiled, Interpreted, states
from kvproof.model.oracle import Oracle
from kvproof.model.small_instances import EVERY_CONFIG, SMALL, Instance, said
from kvproof.spec.faults import FAULTS, actions_with


def test_every_kind_of_configuration_has_the_situations_that_are_named_for_it() -> None:
    assert CONFIGURED.keys() <= {said(at.config) for at in SMALL}


def test_what_may_never_be_is_asked_of_every_configuration() -> None:
    never = {e.name for e in EXPECTATIONS if not e.reachable}
    assert all(never <= {e.name for e in situations_of(said(config))} for config in EVERY_CONFIG)


def test_a_situation_of_a_configuration_that_is_missed_or_met_wrongly_is_said() -> None:
    (reachable, never) = CONFIGURED["overlap, speculation 2"]
    assert unmet((reachable, never), {reachable.name: 1, never.name: 0}) == []
    assert unmet((reachable, never), {reachable.name: 0, never.name: 1}) == [
        f"{reachable.name}: expected to be reachable and is not",
        f"{never.name}: expected never and is reached",
    ]


def test_names_are_unique() -> None:
    names = [e.name for situations in CONFIGURED.values() for e in situations]
    assert len(set(names)) == len(names)


def test_where_no_turn_fits_every_reachable_situation_is_missed() -> None:
    states = [found for found in explored([Instance(1, 0)]) if not isinstance(found, str)]
    missed = [f"{e.name}: expected to be reachable and is not, plain" for e in EXPECTATIONS if e.reachable]
    assert [*unmet_in(states)] == missed
    asked = [
        f"{e.name}: expected to be reachable and is not, plain"
        for e in EXPECTATIONS
        if e.reachable and e.of_every_design
    ]
    assert [*unmet_in(states, of_every_design=True)] == asked != missed


def test_a_situation_may_be_met_in_any_instance_of_its_configuration() -> None:
    """One that ends inside a page is only in the larger."""
    small, larger = (found for found in explored([Instance(1, 3), Instance(2, 4)]) if not isinstance(found, str))
    missed = ["a slot that ends inside a page: expected to be reachable and is not, plain"]
    assert [*unmet_in([small])] == missed
    assert [*unmet_in([small, larger])] == []


def test_an_instance_without_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "most_states", 100)
    monkeypatch.setattr(Interpreted, "most_states", 100)
    assert explored([Instance(1, 3)]) == ["not explored whole: P=1 row width 3, plain has more than 100 states"]


def test_a_ctrl_c_ends_a_search_in_a_thread_before_its_next_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "heed", Mock(side_effect=[None, KeyboardInterrupt]))
    searched = Mock(return_value="the first")
    monkeypatch.setattr(expectations, "_explored", searched)
    with ThreadPoolExecutor(1) as beside, pytest.raises(KeyboardInterrupt):
        beside.submit(explored, [Instance(1, 3), Instance(2, 4)]).result()
    assert searched.call_count == 1


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
    oracle = Oracle.of(1, 3, actions_with(FAULTS[fault]))
    (never,) = (e for e in EXPECTATIONS if e.name == situation)
    # States under faulty rules may be without end: as many as show it.
    assert any(never.holds(oracle.d, state) for state in islice(states(oracle), 1000))
