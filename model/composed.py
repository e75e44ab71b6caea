"""The ledger and a node of the tree, composed: what a row shares is in the tree and locked, whenever pages are taken.

Each is proved apart in `model/prove.py`. Here a step of the ledger is a sequence of steps of the node (`spec/shared_prefix.py`),
and the tree evicts whatever its own rule lets it evict. So the guards of the tree's rules are obligations of the ledger's, and
what the lemma on eviction assumes (`model/page_lemmas.py`: no row's locked prefix names the page) follows from the lock count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.arbitrary_step import any_state, arbitrary_step
from kvproof.model.page_lemmas import Lemma
from kvproof.model.questions import Asker, Label, Posed, Question, together
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action, Run, Step
from kvproof.spec.domain import Domain
from kvproof.spec.effects import Lock, Share, Take, Unlock
from kvproof.spec.faults.fault import in_order, with_parts, without
from kvproof.spec.machine import LEDGER, TREE, Machine, machine_of
from kvproof.spec.shared_prefix import Place, follow, locks_are_counted, match_is_current
from kvproof.spec.state import Ledger
from kvproof.spec.tree import Node, tree_evict

SHARED_PREFIX = "shared prefix"
COUNTED: Label = ("I11", "the node counts each row's lock")
STAYS: Label = ("I11", "what a row shares stays in the tree")

Asked = list[tuple[Label, Any]]


def prove_shared_prefix(asker: Asker, ledger: Machine = LEDGER) -> Iterator[Lemma]:
    """What is asked of each of these rules of the ledger, and of each of the tree's, by which anyone else changes it."""
    posed: dict[str, Callable[[], Posed]] = {"(initial)": _pose_initial}
    posed |= {
        action.name: partial(_pose, action, ledger) for action in (*ledger.actions.values(), *TREE.actions.values())
    }
    for name, pose in posed.items():
        for (_, sentence), answer in asker.answers(Question(f"{SHARED_PREFIX}: {name}", pose)).items():
            yield Lemma(SHARED_PREFIX, f"{name}: {sentence}", answer.verdict, answer.seconds)


def _pose(action: Action, ledger: Machine) -> Posed:
    assumptions, asked = _step(action, ledger, matched=True)
    return Posed(assumptions, together(asked))


def _step(action: Action, ledger: Machine, matched: bool) -> tuple[tuple[Any, ...], Asked]:
    """What is assumed of a step, and what is asked of it. `matched`: what the ledger matched is in the tree still."""
    machine = TREE if action.name in TREE.actions else ledger
    taken = arbitrary_step(action, machine)
    d, s, of_ledger = any_state(ledger)
    _, node, of_node = any_state(TREE)
    of_the_other = of_ledger if machine is TREE else of_node
    place = d.arbitrary(Place)
    assumed = (*of_the_other, *taken.assumptions, place.depth >= 0, locks_are_counted(d, s, node, place))
    if machine is TREE:
        theirs = place.but(elsewhere=place.elsewhere + OF_OTHERS.get(action.name, 0))
        # Who unlocks undoes a lock of its own.
        return (*assumed, theirs.elsewhere >= 0), _kept(d, s, taken.after, theirs)
    followed = follow(d, s, taken.step.after, taken.step.effects, node, place, z3.Bool("is_evicted"))
    asked: Asked = [((c.invariant, c.sentence), c.holds) for c in followed.conditions]
    current = (match_is_current(d, s, node, place),) if matched else ()
    return (*assumed, *current), [*asked, *_kept(d, taken.after, followed.node, place)]


OF_OTHERS = {"tree_lock": 1, "tree_unlock": -1}
"""Locks of other rows that such a step of the tree adds."""


def _kept(d: Symbols, s: Ledger, node: Node, place: Place) -> Asked:
    stays = z3.Implies(place.is_within(d, s.tree_end), node.present)
    return [(COUNTED, locks_are_counted(d, s, node, place)), (STAYS, stays)]


def _pose_initial() -> Posed:
    d = Symbols()
    place = d.arbitrary(Place).but(elsewhere=0)
    return Posed((*d.configuration(), place.depth >= 0), dict(_kept(d, LEDGER.start(d), TREE.start(d), place)))


# --- each of these fails --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A rule in place of the action's, and what it breaks. `matched`: what it matched is in the tree still."""

    action: Action
    breaks: Label
    matched: bool


WRONG: list[Wrong] = []


def wrong(of: str, invariant: str, sentence: str, matched: bool = True) -> Callable[[Run], Run]:
    def add(rule: Run) -> Run:
        WRONG.append(Wrong(dataclasses.replace(machine_of(of).actions[of], run=rule), (invariant, sentence), matched))
        return rule

    return add


def questions_that_fail() -> Iterator[tuple[str, Question]]:
    """What it would mean that a wrong rule breaks nothing, and whether it does break something."""
    for found in WRONG:
        rule = found.action.run.__name__
        yield f"{rule}: breaks nothing of '{found.breaks[1]}'", Question(f"twin: {rule}", partial(_pose_wrong, found))


def _pose_wrong(found: Wrong) -> Posed:
    assumptions, asked = _step(found.action, LEDGER, found.matched)
    failing = [z3.Not(holds) for label, holds in asked if label == found.breaks]
    return Posed((*assumptions, z3.Or(*failing)), {})


@wrong("extend", "I11", "what a row shares is locked when pages are taken")
def locks_after_taking(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return in_order(ACTIONS["extend"].run(d, s, p), Share, Take, Lock)


@wrong("extend", "I12", "what a row shares is in the tree when it is shared")
def shares_after_taking(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return in_order(ACTIONS["extend"].run(d, s, p), Take, Share, Lock)


@wrong("extend", "I11", "a lock goes through nodes that the tree holds", matched=False)
@wrong("extend", "I12", "what a row shares is in the tree when it is shared", matched=False)
def runs_on_an_old_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return ACTIONS["extend"].run(d, s, p)


@wrong("extend", *COUNTED)
def locks_a_shorter_path(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return with_parts(ACTIONS["extend"].run(d, s, p), Lock, pages=0)


@wrong("close", *COUNTED)
def close_leaves_the_lock(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return without(ACTIONS["close"].run(d, s, p), Unlock)


@wrong("close", "I11", "a lock that is undone was held")
def close_unlocks_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    step = ACTIONS["close"].run(d, s, p)
    return dataclasses.replace(step, effects=(*step.effects, Unlock(s.slot_held)))


@wrong("tree_evict", *STAYS)
def evicts_what_is_locked(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    return dataclasses.replace(tree_evict.run(d, s, p), guards=())
