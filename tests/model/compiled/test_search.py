"""The compiled search takes the steps that the interpreted one takes, in the same order, and finds the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("numpy")

from kvproof.model.compiled import assembly
from kvproof.model.compiled.search import CompiledRules
from kvproof.model.expectations import situations_of
from kvproof.model.explore import Compiled, Interpreted, successors
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.model.small_instances import SMALL, Instance, said
from kvproof.model.written_rule import action_of, written_flag, written_rule
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.faults import FAULTS, actions_with
from kvproof.spec.machine import LEDGER

EVERYTHING = {"overlap": True, "speculation": 2, "drafts": 2, "window": 1}
OF_ALL_KINDS = (*SMALL, Instance(2, 3, EVERYTHING), Instance(3, 4, {"window": 2, "tree": False}))
SEVERAL_FAULTS = ("F22790e", "F22862b", "F20476", "S0511a", "M19", "M24")
"""The last two are of other machines than the ledger."""


def domain(at: Instance) -> Integers:
    return Integers(at.page_size, at.row_width, **at.config)


@pytest.mark.parametrize("at", OF_ALL_KINDS, ids=str)
def test_all_states_of_an_instance_are_found_with_the_same_counts(at: Instance) -> None:
    situations = [e.holds for e in situations_of(said(at.config))]
    assert Compiled().whole(domain(at), situations) == Interpreted().whole(domain(at), situations)


@pytest.mark.parametrize(
    "fault_id", [f if f in SEVERAL_FAULTS else pytest.param(f, marks=pytest.mark.slow) for f in FAULTS]
)
def test_the_shortest_run_of_a_fault_is_the_same_run(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    actions, d = actions_with(fault, fault.machine), Integers(*fault.smallest, **fault.config)
    for invariant in (fault.breaks[0], None):
        run = Compiled(actions, fault.machine).shortest(d, invariant)
        assert run is not None
        assert run == Interpreted(actions, fault.machine).shortest(d, invariant)
    assert Compiled(actions, fault.machine).shortest(d, "I0") is None


def steps_differ(d: Integers) -> list[Any]:
    """States from which the compiled rules take other steps, or in another order."""
    oracle, found = Oracle(d, ACTIONS), CompiledRules(LEDGER, ACTIONS).search(d, 5000, keep_edges=True)
    numbers = {row.tobytes(): number for number, row in enumerate(found.states)}
    left, different = [LEDGER.start(d)], list[Any]()
    targets = {
        source: of_chunk[begin:end].tolist()
        for sources, begins, of_chunk in found.edges
        for source, begin, end in zip(sources.tolist(), begins, [*begins[1:], len(of_chunk)], strict=True)
    }
    seen = set(left)
    for state in left:
        expected = [step.outcome.after for step in successors(oracle, state)]
        number = numbers.get(found.layout.row_of(state))
        taken = None if number is None else targets.get(number, [])
        if taken != [numbers.get(found.layout.row_of(after)) for after in expected]:
            different.append(state)
        left += dict.fromkeys(after for after in expected if after not in seen)
        seen.update(expected)
    assert different or len(left) == len(found.states)
    return different


def test_every_step_is_taken_in_the_same_order() -> None:
    assert steps_differ(Integers(2, 3, **EVERYTHING)) == []


def test_an_operator_that_is_printed_wrongly_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(assembly.OF_NUMBERS, "less_or_equal", "icmp slt i64 {}, {}")
    assert steps_differ(Integers(2, 3, **EVERYTHING)) != []
    with pytest.raises(AssertionError, match="the compiled rules take a step that the rules do not take"):
        Compiled().shortest(Integers(2, 3, **EVERYTHING))


def sent(action: Action) -> Action:
    """As a variant's rule arrives: written down in another process."""
    return action_of(action.name, written_rule(action.run, action.params, "file.py", 7), written_flag(action.applies))


def test_a_rule_of_many_parts_is_compiled() -> None:
    def run(d: Any, s: Any, p: Any) -> Step:
        total = s.pending
        for _ in range(5000):
            total = total + s.locks
        return Step(s, (Guard("never", d.no(total == 0)),))

    check = dataclasses.replace(ACTIONS["check"], run=run)
    assert Compiled({"check": check}).whole(Integers(1, 3)).taken == {"check": 0}


def test_rules_that_were_written_down_are_compiled_too() -> None:
    d, written = Integers(1, 3, overlap=True, window=1), {name: sent(action) for name, action in ACTIONS.items()}
    assert Compiled(written).whole(d) == Compiled().whole(d)
