"""Page identity: each effect keeps ownership and the window map, and not without each of its updates.

That it can happen, and that it breaks something without each of its side conditions, is asked in every proof (`test_prove.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import z3

from kvproof.model.page_lemmas import (
    AFTER,
    EFFECTS,
    J_STATEMENTS,
    SIZE,
    conditions,
    holds_after,
    holds_before,
    lemma_questions,
    meaning,
    prove_effects,
)
from kvproof.model.pages import TREE, Universe, state
from kvproof.model.questions import Asker
from kvproof.model.window_map import window_state
from kvproof.spec import effects as spec_effects

POOLS = {**vars(state("")), **vars(window_state(""))}
"""The arrays of both pools, by name."""
OF_NO_ROW = {"Evict", "EvictWindow"}
"""What the tree does by itself."""
OF_THE_TURN = {"Begin", "Generate", "Succeed", "End", "AskClose", "EndSession"}
OF_NO_PAGE = {*OF_THE_TURN, "TakeRow", "Write", "FreeByLoc", "Forget", "Lock", "Unlock", "Report"}
"""Effects that give no page to anyone; FreeByLoc, which no right rule has, breaks I16 by being there."""


def is_written_by(effect: str, array: str) -> bool:
    return not any(fact.eq(after(array) == POOLS[array]) for fact in meaning(Universe(), effect))


def after(array: str) -> Any:
    return z3.Const(array + AFTER, POOLS[array].sort())


def broken_after(does: list[Any], forgotten: str | None = None) -> Iterator[str]:
    """The J that a finite instance can break, if all this is done and one array is not written."""
    u = Universe(SIZE)
    solver = z3.Solver()
    solver.add(*holds_before(u).values(), *does)
    as_it_was = [(after(forgotten), POOLS[forgotten])] if forgotten else []
    kept = {name: z3.substitute(formula, *as_it_was) for name, formula in holds_after(u).items()}
    yield from (name for name, formula in kept.items() if solver.check(z3.Not(formula)) == z3.sat)


def test_each_effect_keeps_every_page_with_one_owner_and_the_map_true() -> None:
    lemmas = list(prove_effects(Asker()))
    assert len(lemmas) == len(EFFECTS) * len(J_STATEMENTS)
    assert {lemma.verdict for lemma in lemmas} == {"proved"}


def test_every_effect_of_the_rules_that_moves_pages_has_its_lemma() -> None:
    of_rules = {effect.__name__ for effect in spec_effects.Effect.__args__}
    assert of_rules - OF_NO_PAGE == set(EFFECTS) - OF_NO_ROW


def test_a_tombstone_can_get_the_window_page_of_a_copy() -> None:
    u = Universe(SIZE)
    does, sides = meaning(u, "Insert"), conditions(u, "Insert")
    before, now = window_state(""), window_state(AFTER)
    solver = z3.Solver()
    solver.add(*holds_before(u).values(), *does, *sides.values(), before.tombstone[0], z3.Not(now.tombstone[0]))
    solver.add(state("").owner[0] == TREE, before.behind[now.window_of[0]] == 1)
    assert solver.check() == z3.sat


@pytest.mark.parametrize("effect", EFFECTS)
def test_what_is_assumed_of_an_effect_does_not_contradict_itself(effect: str) -> None:
    """Over everything no model is found, but no contradiction either: from one, each J would follow."""
    posed = lemma_questions()[effect].pose()
    solver = z3.Solver()
    solver.set("rlimit", 1_000_000)
    solver.add(*posed.assumptions)
    assert solver.check() != z3.unsat


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_finite_twin_fails_for_the_dropped_condition_alone(effect: str) -> None:
    """With every side condition the same finite instance keeps every J: its definitions leave nothing open."""
    does, sides = meaning(Universe(SIZE), effect), conditions(Universe(SIZE), effect)
    assert list(broken_after([*does, *sides.values()])) == []


@pytest.mark.parametrize(
    ("effect", "array"), [(effect, array) for effect in EFFECTS for array in POOLS if is_written_by(effect, array)]
)
def test_no_update_is_superfluous(effect: str, array: str) -> None:
    """An effect after which one array is as it was breaks some J."""
    does, sides = meaning(Universe(SIZE), effect), conditions(Universe(SIZE), effect)
    assert any(broken_after([*does, *sides.values()], forgotten=array))
