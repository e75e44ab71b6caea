"""The lemmas of page identity: each effect, given the side conditions that `spec/effects.py` states, keeps J1 to J9.

Quantifiers prove; they do not refute (a false goal comes back `unknown`). So each effect has a twin with one side
condition dropped, on a small finite instance, that must be satisfiable: a proof that cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import z3

from kvproof.model.pages import (
    COUNT,
    DUPLICATES,
    FIRST,
    FREED_FROM,
    FULL_EFFECTS,
    LAST,
    OWNERSHIP,
    PAGE,
    ROW,
    TREE,
    Meaning,
    Universe,
    ownership,
    state,
    unpinned,
)
from kvproof.model.questions import BROKEN, PROVED, UNKNOWN, Asker, Posed, Question
from kvproof.model.symbolic import Symbols
from kvproof.model.window_map import MAP_EFFECTS, WINDOW_MAP, map_is_true, window_state
from kvproof.spec.effects import DropRow, Effect, Free, FreeWindow, Insert, Share, Take
from kvproof.spec.state import Ledger

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


def as_one_lemma(asker: Asker, effect: str, goal: str, pose: Callable[[], Posed]) -> Lemma:
    """All goals of a question as one lemma: as bad as its worst goal."""
    answers = asker.answers(Question(f"{effect}: {goal}", pose)).values()
    verdicts = {answer.verdict for answer in answers}
    worst = next(verdict for verdict in (BROKEN, UNKNOWN, PROVED) if verdict in verdicts)
    return Lemma(effect, goal, worst, sum(answer.seconds for answer in answers))


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
    """What the effect does to both pools."""
    windows = MAP_EFFECTS[effect](u, state(""), state(AFTER), window_state(""), window_state(AFTER))
    return [*_in_the_full_pool(u, effect), *windows]


def _in_the_full_pool(u: Universe, effect: str) -> Meaning:
    return FULL_EFFECTS[effect](u, state(""), state(AFTER)) if effect in FULL_EFFECTS else []


def conditions(u: Universe, effect: str) -> dict[str, Any]:
    """The side conditions of an effect on row r, by sentence: those of the specification that speak of nothing but pages."""
    pool, windows, d = state(""), window_state(""), Symbols()
    if effect == "Evict":
        return {"no row's locked prefix names the page (I11)": unpinned(u, pool)}
    if effect == "EvictWindow":
        return {"the page is the tree's (I1)": pool.owner[PAGE] == TREE}
    ends = {name: getattr(pool, name)[ROW] for name in ("row_end", "tree_end")}
    of_row = d.arbitrary(Ledger, " of r").but(**ends, window_start=windows.window_start[ROW])
    _, asked = _of_row(d)[effect].apply(d, of_row, d.arbitrary(Ledger, " of r, after"))
    return {f"{c.sentence} ({c.invariant})": c.holds for c in asked if speaks_of_pages(c.holds)}


CURSOR = "window_start"
OF_PAGES = {"row_end", "tree_end", CURSOR} | {str(given) for given in (ROW, FIRST, LAST, COUNT, DUPLICATES, FREED_FROM)}


def _of_row(d: Symbols) -> dict[str, Effect]:
    """The effects of the specification on row r, by name, with what they are given here."""
    effects = (
        Take(FIRST, LAST, d.variable("length", "charge")),
        Free(d.tokens(FIRST), d.tokens(LAST)),
        Share(d.true, COUNT),
        Insert(d.true, LAST, DUPLICATES, FREED_FROM),
        DropRow(d.true),
        FreeWindow(FIRST, LAST),
    )
    return {type(effect).__name__: effect for effect in effects}


def speaks_of_pages(term: Any) -> bool:
    """Of nothing but pages, and of them at all."""
    names = names_in(z3.simplify(term))
    return bool(names) and names <= OF_PAGES


def names_in(term: Any) -> set[str]:
    """The free symbols of a term without quantifiers; `z3util.get_vars` prints each part to compare it, a tenth of a proof."""
    parts, seen = [term], dict[int, Any]()
    while parts:
        part = parts.pop()
        if part.get_id() not in seen:
            seen[part.get_id()] = part
            parts.extend(part.children())
    return {
        part.decl().name()
        for part in seen.values()
        if z3.is_const(part) and part.decl().kind() == z3.Z3_OP_UNINTERPRETED
    }


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
    does, sides = meaning(u, effect), conditions(u, effect)
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
    before, after, sides = holds_before(u), holds_after(u), conditions(u, effect)
    if dropped and effect in FULL_EFFECTS and CURSOR not in names_in(sides[dropped]):
        # What breaks without it are J1 to J4: the map need not be looked at, and without it the search is four times as fast.
        before, after = ({name: pool[name] for name in OWNERSHIP} for pool in (before, after))
        does = _in_the_full_pool(u, effect)
    else:
        does = meaning(u, effect)
    kept = [formula for name, formula in sides.items() if name != dropped]
    fails = [z3.Not(z3.And(*after.values()))] if dropped else []
    return Posed((*before.values(), *does, *kept, *fails), {})


@cache
def side_conditions(effect: str) -> tuple[str, ...]:
    return tuple(conditions(Universe(), effect))
