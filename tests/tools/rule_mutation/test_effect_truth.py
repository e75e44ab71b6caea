"""What effects demand is exactly what is needed on small rows, and the check would notice if it were not."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
from rule_mutation.effect_truth import TRUTH, untrue_effects

from kvproof.spec import effects
from kvproof.spec.domain import Domain
from kvproof.spec.state import Ledger


@pytest.mark.slow
def test_effects_demand_what_is_needed_and_no_more() -> None:
    assert list(untrue_effects()) == []


def test_every_effect_that_is_known_here_exists() -> None:
    assert [name for name in TRUTH if not hasattr(effects, name)] == []


@pytest.mark.parametrize(
    ("name", "sentence"), [("Take", "written into no row"), ("DropRow", "goes back that is not there")]
)
def test_an_effect_without_its_conditions_is_found(name: str, sentence: str) -> None:
    right = getattr(effects, name)

    def unconditional(self: Any, d: Domain, s: Ledger, after: Ledger) -> effects.Applied:
        return right.apply(self, d, s, after)[0], ()

    copy = ModuleType("effects")
    lax = dataclasses.dataclass(frozen=True)(type(name, (right,), {"apply": unconditional}))
    setattr(copy, name, lax)
    (found,) = untrue_effects(copy)
    assert found.startswith(f"{name}: ")
    assert sentence in found
    assert "no condition says so" in found
