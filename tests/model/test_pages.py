"""Page identity: each effect keeps ownership, and not without each of its side conditions."""

from __future__ import annotations

import pytest

from kvproof.model.pages import EFFECTS, J_STATEMENTS, can_happen, prove_effects, refute_without, side_conditions


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
