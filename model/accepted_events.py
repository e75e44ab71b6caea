"""Which events a table of rules takes: never by two rules, and, of a changed one, whatever comes that the built-in one takes.

A changed rule may ask for more than the built-in one where the implementation chooses: how much of a match it uses, how far
ahead it reserves, when it evicts. What users and the model bring it must take: a turn and an answer of any length, any number
of accepted drafts, an abort and a close in every state. Inserts and chunks are left to the implementation; that a prefill ends
is asked by `model/liveness.py`. But what the tree has of an insert is known only then: a rule that inserts takes all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.arbitrary_step import any_state
from kvproof.model.page_lemmas import Lemma, as_one_lemma
from kvproof.model.questions import Asker, Posed
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.actions.decode import end_of_round
from kvproof.spec.actions.prefill import copies_in_the_tree
from kvproof.spec.domain import ceil_align, floor_align, larger, minus
from kvproof.spec.effects import Insert
from kvproof.spec.machine import LEDGER, Machine
from kvproof.spec.state import RUNNING, Ledger

EVENTS = "events"
LEFT_TO_THE_IMPLEMENTATION = ("extend", "insert", "stash")
OF_THE_TREE = "dup_len"
WHATEVER_COPIES = "taken whatever copies the tree has"
AFTER_RESULTS = ("abort", "finish", "retract")
"""What an implementation may put off until the results in flight are in."""

Choices = Callable[[Symbols, Ledger], Sequence[Any]]


def _reserves(d: Symbols, s: Ledger) -> Sequence[Any]:
    """As sglang 0.5.11 does; as far as the round may write; whole pages; the rest of the row."""
    needed = s.kv_committed_len + d.one + d.drafts + d.drafts
    ahead, enough, exactly = (
        larger(d, s.kv_allocated_len, to) for to in (needed + d.one + d.one, needed, end_of_round(d, s))
    )
    return ahead, enough, exactly, ceil_align(d, ahead), ceil_align(d, exactly), d.row_width


CHOSEN: Mapping[str, Choices] = {
    "matched_len": lambda d, s: (d.zero,),
    "allocated_len": _reserves,
    "pre_len": lambda d, s: (
        s.kv_committed_len,
        minus(d, s.kv_committed_len, d.one),
        floor_align(d, s.kv_committed_len),
    ),
    "inserted": lambda d, s: (d.false, d.true),
}
"""Parameters that the implementation chooses, and choices of which it must have one. The others come from outside."""
ADDED: Mapping[str, Choices] = {
    "key_len": lambda d, s: (s.kv_committed_len,),
    "dup_len": lambda d, s: (s.cache_protected_len,),
}
"""Of a parameter that the built-in rule does not have: an abort that inserts, a finish that inserts less."""


def prove_accepted_events(asker: Asker, replaced: Collection[str], machine: Machine = LEDGER) -> Iterator[Lemma]:
    """What the machine takes with its `replaced` rules; of the built-in table alone, whether its rules exclude each other."""
    table = machine.actions
    of_interest = {_key(table[name]) for name in (replaced or table)}
    for key, rules in itertools.groupby(sorted(table.values(), key=_key), _key):
        among = {rule.name: rule for rule in rules}
        if key in of_interest and len(among) > 1:
            yield as_one_lemma(
                asker, EVENTS, f"{key[0]}: no two rules judge one event", partial(_pose_exclusive, among, machine)
            )
    for name in replaced:
        if OF_THE_TREE in table[name].params:
            yield as_one_lemma(asker, EVENTS, f"{name}: {WHATEVER_COPIES}", partial(_pose_copies, table[name], machine))
        if ACTIONS[name].event not in LEFT_TO_THE_IMPLEMENTATION:
            among = {rule.name: rule for rule in table.values() if _key(rule) == _key(ACTIONS[name])}
            what = f"{name}: taken wherever the built-in rule can be"
            yield as_one_lemma(asker, EVENTS, what, partial(_pose_taken, name, among, machine))


def _key(action: Action) -> tuple[str, bool]:
    return action.event, action.of_another


def _pose_exclusive(rules: Mapping[str, Action], machine: Machine) -> Posed:
    d, s, assumed = any_state(machine)
    applies = {name: rule.applies(d, s) for name, rule in rules.items()}
    goals = {
        (EVENTS, f"{one} and {other}"): z3.Not(z3.And(applies[one], applies[other]))
        for one, other in itertools.combinations(applies, 2)
    }
    return Posed(assumed, goals)


def _pose_taken(name: str, rules: Mapping[str, Action], machine: Machine) -> Posed:
    """The first choice is the built-in rule's; it is one with which the others can be taken, too."""
    d, s, assumed = any_state(machine)
    right = ACTIONS[name]
    given = vars(d.parameters(right.params))
    well_formed = [d.is_well_formed(sort, given[param]) for param, sort in right.params.items()]
    first = {param: CHOSEN[param](d, s)[0] for param in given if param in CHOSEN}
    every_way = (
        _enabled(d, rule, s, {**given, **chosen}) for rule in rules.values() for chosen in _choices(d, rule, right, s)
    )
    taken = z3.Or(*every_way)
    may_wait = right.event in AFTER_RESULTS
    known = z3.Implies(s.phase == RUNNING, s.pending == 0) if may_wait else z3.BoolVal(True)
    return Posed((*assumed, *well_formed, known, _enabled(d, right, s, {**given, **first})), {(EVENTS, name): taken})


def _pose_copies(rule: Action, machine: Machine) -> Posed:
    """The same event with two answers of the tree: who takes it with one takes it with the other."""
    d, s, assumed = any_state(machine)
    given = vars(d.parameters(rule.params))
    others = {**given, OF_THE_TREE: d.variable("length", f"another ${OF_THE_TREE}")}
    well_formed = [d.is_well_formed(sort, of[param]) for of in (given, others) for param, sort in rule.params.items()]
    inserts = (e for e in rule.run(d, s, SimpleNamespace(**others)).effects if isinstance(e, Insert))
    pages = next((insert.pages for insert in inserts), d.floor_pages(s.kv_committed_len))
    possible = [guard.holds for of in (given, others) for guard in copies_in_the_tree(d, s, pages, of[OF_THE_TREE])]
    taken = _enabled(d, rule, s, given)
    assumptions = (*assumed, *well_formed, *possible, _enabled(d, rule, s, others))
    return Posed(assumptions, {(EVENTS, WHATEVER_COPIES): taken})


def _choices(d: Symbols, rule: Action, right: Action, s: Ledger) -> Iterator[dict[str, Any]]:
    choices = {**{param: of for param, of in ADDED.items() if param not in right.params}, **CHOSEN}
    of_rule = {param: choices[param](d, s) for param in rule.params if param in choices}
    return (dict(zip(of_rule, values, strict=True)) for values in itertools.product(*of_rule.values()))


def _enabled(d: Symbols, rule: Action, s: Ledger, given: Mapping[str, Any]) -> Any:
    params = {**vars(d.parameters(rule.params)), **given}
    step = rule.run(d, s, SimpleNamespace(**params))
    return z3.And(rule.applies(d, s), *(guard.holds for guard in step.guards))
