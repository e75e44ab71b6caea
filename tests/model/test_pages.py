"""Page identity: each effect keeps ownership, and not without each of its side conditions."""

from __future__ import annotations

import pytest
import z3

from kvproof.model.pages import (
    AFTER,
    EFFECTS,
    J_STATEMENTS,
    Universe,
    _state,
    can_happen,
    ownership,
    prove_effects,
    refute_without,
    side_conditions,
)


def test_each_effect_keeps_every_page_with_one_owner() -> None:
    lemmas = list(prove_effects())
    assert len(lemmas) == len(EFFECTS) * len(J_STATEMENTS)
    assert {lemma.verdict for lemma in lemmas} == {"proved"}


@pytest.mark.parametrize("effect", EFFECTS)
def test_each_effect_can_happen(effect: str) -> None:
    assert can_happen(effect)


@pytest.mark.parametrize(
    ("effect", "condition"), [(effect, condition) for effect in EFFECTS for condition in side_conditions(effect)]
)
def test_no_side_condition_is_superfluous(effect: str, condition: str) -> None:
    assert refute_without(effect, condition)


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_finite_twin_fails_for_the_dropped_condition_alone(effect: str) -> None:
    """With every side condition the same finite instance keeps ownership: its definitions leave nothing open."""
    u = Universe(3)
    before, after = _state(""), _state(AFTER)
    meaning, sides = EFFECTS[effect](u, before, after)
    solver = z3.Solver()
    solver.add(*ownership(u, before).values(), *meaning, *sides.values())
    assert solver.check(z3.Not(z3.And(*ownership(u, after).values()))) == z3.unsat
