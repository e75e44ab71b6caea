"""What effects demand is exactly what small rows need, what they tell is so, and the questions would say if it were not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.model.questions import PROVED, Asker, ask_z3
from kvproof.model.small_rows import TRUTH, pose, prove_small_rows
from kvproof.spec import effects
from kvproof.spec.domain import Domain
from kvproof.spec.effects import Condition
from kvproof.spec.state import Ledger

ENOUGH, NO_MORE, TOLD = (
    "nothing goes wrong where its conditions hold",
    "its conditions hold where nothing goes wrong",
    "what it says of the row is so",
)


def failing(name: str, page_size: int = 2) -> set[str]:
    return {goal for (_, goal), answer in ask_z3(pose(name, page_size)).items() if answer.verdict != PROVED}


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(name: str, apply: Any) -> None:
        right = getattr(effects, name)
        wrong = dataclasses.dataclass(frozen=True)(type(name, (right,), {"apply": apply(right)}))
        monkeypatch.setattr(effects, name, wrong)

    return put


def test_effects_demand_what_is_needed_and_no_more() -> None:
    assert {lemma.verdict for lemma in prove_small_rows(Asker())} == {PROVED}


def conditions() -> Iterator[tuple[str, str]]:
    """But of an effect that must never happen: its first condition says so, whatever the other one says."""
    sentences = {
        "Begin": 1,
        "Generate": 2,
        "Succeed": 2,
        "EndSession": 1,
        "TakeRow": 1,
        "DropRow": 3,
        "Share": 1,
        "Take": 3,
        "Write": 3,
        "Free": 4,
        "FreeWindow": 3,
        "Insert": 5,
        "Unlock": 1,
        "Report": 2,
    }
    return ((name, number) for name, count in sentences.items() for number in range(count))  # type: ignore[misc]


@pytest.mark.parametrize(("name", "number"), [*conditions()])
def test_an_effect_without_one_of_its_conditions_is_found(replaced: Any, name: str, number: int) -> None:
    def lax(right: Any) -> Any:
        def apply(self: Any, d: Domain, s: Ledger, after: Ledger) -> effects.Applied:
            ghosts, asked = right.apply(self, d, s, after)
            return ghosts, (*asked[:number], *asked[number + 1 :])

        return apply

    replaced(name, lax)
    assert ENOUGH in failing(name)


@pytest.mark.parametrize("name", TRUTH)
def test_an_effect_that_asks_for_more_is_found(replaced: Any, name: str) -> None:
    def strict(right: Any) -> Any:
        def apply(self: Any, d: Domain, s: Ledger, after: Ledger) -> effects.Applied:
            ghosts, asked = right.apply(self, d, s, after)
            return ghosts, (*asked, Condition("I5", s.rows == 0, "there is no row"))

        return apply

    replaced(name, strict)
    assert failing(name) == {NO_MORE}


@pytest.mark.parametrize("name", TRUTH)
def test_an_effect_that_tells_what_is_not_so_is_found(replaced: Any, name: str) -> None:
    def lying(right: Any) -> Any:
        def apply(self: Any, d: Domain, s: Ledger, after: Ledger) -> effects.Applied:
            ghosts, asked = right.apply(self, d, s, after)
            return ghosts.but(orphans=ghosts.orphans + 1), asked

        return apply

    replaced(name, lying)
    assert failing(name) == {TOLD}
