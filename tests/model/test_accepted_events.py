"""No two rules judge one event; and a changed table takes what users and the model bring, for every page size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.model.accepted_events import CHOSEN, LEFT_TO_THE_IMPLEMENTATION, prove_accepted_events
from kvproof.model.questions import BROKEN, PROVED, Asker
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.domain import Domain, Flag, is_aligned
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES
from kvproof.spec.state import RUNNING, Ledger

Condition = Callable[[Domain, Ledger, SimpleNamespace], Flag]


def asking(name: str, holds: Condition) -> Action:
    """The built-in rule with one more guard."""
    right = ACTIONS[name]

    def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
        step = right.run(d, s, p)
        return dataclasses.replace(step, guards=(*step.guards, Guard("one more", holds(d, s, p))))

    return dataclasses.replace(right, run=run)


def found(*changed: Action) -> dict[str, str]:
    rules = {action.name: action for action in changed}
    machine = dataclasses.replace(LEDGER, actions={**ACTIONS, **rules})
    return {lemma.goal: lemma.verdict for lemma in prove_accepted_events(Asker(), rules, machine)}


def broken(*changed: Action) -> list[str]:
    return [goal for goal, verdict in found(*changed).items() if verdict == BROKEN]


def test_the_built_in_rules_exclude_each_other() -> None:
    verdicts = found()
    assert set(verdicts.values()) == {PROVED}
    assert "close: no two rules judge one event" in verdicts


@pytest.mark.parametrize("name", PROFILES)
def test_the_rules_of_each_release_do_too(name: str) -> None:
    exclusive = {
        goal: verdict for goal, verdict in found(*PROFILES[name].replaced.values()).items() if "no two" in goal
    }
    assert set(exclusive.values()) <= {PROVED}


@pytest.mark.parametrize("name", sorted(set(ACTIONS) - set(LEFT_TO_THE_IMPLEMENTATION)))
def test_each_built_in_rule_takes_what_it_takes(name: str) -> None:
    assert broken(ACTIONS[name]) == []


def test_two_rules_for_one_close_are_noticed() -> None:
    waits_always = dataclasses.replace(ACTIONS["defer_close"], applies=lambda d, s: s.is_open)
    assert broken(waits_always) == ["close: no two rules judge one event"]


NARROWER: dict[str, Condition] = {
    "create": lambda d, s, p: d.some(p.too_long, s.checkpoint_len == d.zero),
    "refuse": lambda d, s, p: d.no(s.closing),
    "match_tree": lambda d, s, p: d.no(s.matched),
    "decode": lambda d, s, p: d.no(is_aligned(d, s.kv_allocated_len)),
    "result": lambda d, s, p: p.tokens == d.one,
    "verify": lambda d, s, p: p.tokens == d.drafts + d.one,
    "evict_window": lambda d, s, p: s.origin_len + s.output_len <= d.one + d.one,
    "retract": lambda d, s, p: d.no(s.lent),
    "finish": lambda d, s, p: d.one <= p.finished_len,
    "abort_nth": lambda d, s, p: s.phase == RUNNING,
    "close": lambda d, s, p: s.slot_held,
}


@pytest.mark.parametrize("name", NARROWER)
def test_a_rule_that_takes_less_is_noticed(name: str) -> None:
    assert broken(asking(name, NARROWER[name])) == [f"{name}: taken wherever the built-in rule can be"]


DESIGNS: dict[str, Condition] = {
    "match_tree": lambda d, s, p: p.matched_len == d.zero,
    "prepare_round": lambda d, s, p: d.some(is_aligned(d, p.allocated_len), p.allocated_len == d.row_width),
    "evict_window": lambda d, s, p: is_aligned(d, p.pre_len),
    "finish_plain": lambda d, s, p: d.no(p.inserted),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_what_an_implementation_chooses_it_may_choose(name: str) -> None:
    assert broken(asking(name, DESIGNS[name])) == []


def test_each_choice_is_a_parameter_of_a_rule() -> None:
    params: set[Any] = {name for action in ACTIONS.values() for name in action.params}
    assert set(CHOSEN) <= params
