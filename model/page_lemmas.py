"""The lemmas of page identity: each effect, given its side conditions, keeps J1 to J9.

Quantifiers prove; they do not refute (a false goal comes back `unknown`). So each effect has a twin with one side
condition dropped, on a small finite instance, that must be satisfiable: a proof that cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import z3

from kvproof.model.pages import FULL_EFFECTS, OWNERSHIP, Meaning, Universe, ownership, state
from kvproof.model.questions import Asker, Posed, Question
from kvproof.model.window_map import MAP_EFFECTS, WINDOW_MAP, map_is_true, window_state

AFTER = ".after"
J_STATEMENTS = OWNERSHIP | WINDOW_MAP
EFFECTS = tuple(MAP_EFFECTS)
SIZE = 3
"""Rows, positions and pages of a finite twin."""
FINITE = Universe(SIZE)


@dataclass(frozen=True)
class Lemma:
    """One effect keeps one J; `seconds` is the solver's time. Verdicts: proved, broken, unknown."""

    effect: str
    goal: str
    verdict: str
    seconds: float


def holds_before(u: Universe) -> dict[str, Any]:
    """J1 to J9 of the state before an effect."""
    return _holds(u, "")


def holds_after(u: Universe) -> dict[str, Any]:
    return _holds(u, AFTER)


@cache
def _holds(u: Universe, suffix: str) -> dict[str, Any]:
    pool = state(suffix)
    return ownership(u, pool) | map_is_true(u, pool, window_state(suffix))


def meaning(u: Universe, effect: str) -> Meaning:
    """What the effect does to both pools, and its side conditions by name."""
    full = _in_the_full_pool(u, effect)
    windows = MAP_EFFECTS[effect](u, state(""), state(AFTER), window_state(""), window_state(AFTER))
    return [*full[0], *windows[0]], full[1] | windows[1]


def _in_the_full_pool(u: Universe, effect: str) -> Meaning:
    return FULL_EFFECTS[effect](u, state(""), state(AFTER)) if effect in FULL_EFFECTS else ([], {})


def prove_effects(asker: Asker) -> Iterator[Lemma]:
    """Each effect keeps each J, for any number of rows, positions and pages."""
    for effect, question in lemma_questions().items():
        for (goal, _), answer in asker.answers(question).items():
            yield Lemma(effect, goal, answer.verdict, answer.seconds)


def lemma_questions() -> dict[str, Question]:
    """By effect: given its side conditions, it keeps each J."""
    return {effect: Question(f"pages: {effect}", partial(_pose_lemma, effect)) for effect in EFFECTS}


def _pose_lemma(effect: str) -> Posed:
    u = Universe()
    does, sides = meaning(u, effect)
    goals = {(name, J_STATEMENTS[name]): formula for name, formula in holds_after(u).items()}
    return Posed((*holds_before(u).values(), *does, *sides.values()), goals, possible=False)


def twin_questions() -> Iterator[tuple[str, Question]]:
    """What it would mean that a finite twin has no model, and the twin."""
    for effect in EFFECTS:
        yield f"{effect}: never happens", _twin(effect, None)
        for condition in side_conditions(effect):
            yield f"{effect}: holds even without '{condition}'", _twin(effect, condition)


def _twin(effect: str, dropped: str | None) -> Question:
    name = f"twin: {effect}" + (f" without '{dropped}'" if dropped else "")
    return Question(name, partial(_pose_twin, effect, dropped))


def _pose_twin(effect: str, dropped: str | None) -> Posed:
    u = FINITE
    before, after = holds_before(u), holds_after(u)
    if dropped in _in_the_full_pool(u, effect)[1]:
        # What breaks without it are J1 to J4: the map need not be looked at, and without it the search is four times as fast.
        before, after = ({name: pool[name] for name in OWNERSHIP} for pool in (before, after))
        does, sides = _in_the_full_pool(u, effect)
    else:
        does, sides = meaning(u, effect)
    kept = [formula for name, formula in sides.items() if name != dropped]
    fails = [z3.Not(z3.And(*after.values()))] if dropped else []
    return Posed((*before.values(), *does, *kept, *fails), {})


@cache
def side_conditions(effect: str) -> tuple[str, ...]:
    return tuple(meaning(Universe(), effect)[1])
