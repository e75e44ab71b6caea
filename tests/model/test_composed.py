"""The ledger and a node of the tree side by side: proved for the built-in rules, and not for rules that are wrong."""

from __future__ import annotations

import dataclasses

import pytest

from kvproof.model.composed import WRONG, Wrong, prove_shared_prefix, questions_that_fail
from kvproof.model.questions import POSSIBLE, PROVED, Asker
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.machine import LEDGER, TREE, Machine


def test_what_a_row_shares_is_locked_and_in_the_tree_for_all_rules() -> None:
    lemmas = list(prove_shared_prefix(Asker()))
    assert {lemma.verdict for lemma in lemmas} == {PROVED}
    assert {lemma.goal.partition(":")[0] for lemma in lemmas} == {*LEDGER.actions, *TREE.actions, "(initial)"}


def test_each_sentence_is_broken_by_a_wrong_rule() -> None:
    sentences = {lemma.goal.partition(": ")[2] for lemma in prove_shared_prefix(Asker())}
    assert sentences - {POSSIBLE[1]} == {wrong.breaks[1] for wrong in WRONG}


def test_each_proof_asks_whether_the_wrong_rules_break_theirs() -> None:
    assert [
        said for said, question in questions_that_fail() if Asker().answers(question)[POSSIBLE].verdict != PROVED
    ] == []


def _ledger_with(only: dict[str, Action]) -> Machine:
    return dataclasses.replace(LEDGER, actions=only)


WRONG_RULES = {wrong.action.run.__name__: wrong for wrong in WRONG if wrong.matched and wrong.action.name in ACTIONS}


@pytest.mark.parametrize("wrong", WRONG_RULES.values(), ids=WRONG_RULES)
def test_a_wrong_rule_is_not_proved(wrong: Wrong) -> None:
    lemmas = prove_shared_prefix(Asker(), _ledger_with({wrong.action.name: wrong.action}))
    said = {lemma.goal.partition(": ")[2] for lemma in lemmas if lemma.verdict != PROVED}
    assert wrong.breaks[1] in said


def test_the_built_in_rule_in_place_of_a_wrong_one_breaks_nothing() -> None:
    """The questions about wrong rules fail for their rules alone."""
    lemmas = prove_shared_prefix(Asker(), _ledger_with({name: ACTIONS[name] for name in ("extend", "close")}))
    assert {lemma.verdict for lemma in lemmas} == {PROVED}
