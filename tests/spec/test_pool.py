"""Charges and the pool's pages: without any one guard an admitted request finds no pages."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from kvproof.model.prove import induction_step
from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain
from kvproof.spec.machine import POOL
from kvproof.spec.pool import Pool, pool_admit


def verdict(name: str, run: object) -> str:
    (cell,) = induction_step(dataclasses.replace(POOL.actions[name], run=run), [], machine=POOL)  # type: ignore[arg-type]
    return cell.verdict


GUARDS = [
    (name, guard)
    for name, sentences in {
        "pool_admit": ("pages of the tree are locked", "the charge fits beside what others were charged"),
        "pool_take": ("the charge covers what the allocator takes",),
        "pool_give_back": ("a number of pages",),
        "pool_unlock": ("a number of pages",),
        "pool_charge_others": ("what this request was charged stays",),
        "pool_elsewhere": ("a number of pages", "what this request was charged stays"),
    }.items()
    for guard in sentences
]


@pytest.mark.parametrize(("name", "sentence"), GUARDS)
def test_without_a_guard_the_allocator_may_fail(name: str, sentence: str) -> None:
    def without_guard(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
        step = POOL.actions[name].run(d, s, p)
        kept = tuple(guard for guard in step.guards if guard.sentence != sentence)
        assert len(kept) == len(step.guards) - 1
        return dataclasses.replace(step, guards=kept)

    assert verdict(name, POOL.actions[name].run) == "proved"
    assert verdict(name, without_guard) == "broken"


def test_a_charge_that_is_compared_before_the_prefix_is_locked_may_not_be_there() -> None:
    def compares_first(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
        step = pool_admit.run(d, s, p)
        (locked, _), (_, room) = step.guards, pool_admit.run(d, s, SimpleNamespace(charge=p.charge, locked=0)).guards
        return dataclasses.replace(step, guards=(locked, room))

    assert verdict("pool_admit", compares_first) == "broken"
