"""Small machines: each guard of the pool and of batches is needed, and a charge is compared once the prefix is locked."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from kvproof.model.prove import induction_step
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action, Run, Step
from kvproof.spec.domain import Domain
from kvproof.spec.machine import BATCH, POOL, Machine, machine_of
from kvproof.spec.pool import Pool, pool_admit


def sentences_of(action: Action, machine: Machine) -> list[str]:
    d = Symbols()
    step = action.run(d, d.arbitrary(machine.state), d.parameters(action.params))
    return [guard.sentence for guard in step.guards]


GUARDS = [
    (action.name, sentence)
    for machine in (POOL, BATCH)
    for action in machine.actions.values()
    for sentence in sentences_of(action, machine)
]


def verdict(name: str, run: Run) -> str:
    machine = machine_of(name)
    (cell,) = induction_step(dataclasses.replace(machine.actions[name], run=run), [], machine=machine)
    return cell.verdict


def test_all_guards_are_looked_at() -> None:
    assert len(GUARDS) == 10


@pytest.mark.parametrize(("name", "sentence"), GUARDS)
def test_without_a_guard_the_invariant_is_lost(name: str, sentence: str) -> None:
    right = machine_of(name).actions[name].run

    def without_guard(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
        step = right(d, s, p)
        return dataclasses.replace(step, guards=tuple(g for g in step.guards if g.sentence != sentence))

    assert verdict(name, right) == "proved"
    assert verdict(name, without_guard) == "broken"


def test_a_charge_that_is_compared_before_the_prefix_is_locked_may_not_be_there() -> None:
    def compares_first(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
        step = pool_admit.run(d, s, p)
        (locked, _), (_, charge) = step.guards, pool_admit.run(d, s, SimpleNamespace(charge=p.charge, locked=0)).guards
        return dataclasses.replace(step, guards=(locked, charge))

    assert verdict("pool_admit", compares_first) == "broken"
