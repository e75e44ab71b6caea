"""Two solvers must agree, of which one reads text only; every counterexample must hold in plain numbers.

That both prove everything is in `test_prove.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import z3

pytest.importorskip("cvc5")

from kvproof.model.certify import Certifying, cvc5_reader, labelled, runs_as_said, shows
from kvproof.model.explore import Run, Taken, counterexample
from kvproof.model.oracle import Oracle
from kvproof.model.page_lemmas import lemma_questions
from kvproof.model.prove import base_case, induction_step, step_question
from kvproof.model.questions import BROKEN, POSSIBLE, PROVED, UNKNOWN, Answer, Answers, Posed, Question, ask_z3
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS, actions_with
from kvproof.spec.state import pristine

X = z3.Int("x")
GOAL = ("I1", "x is positive")
HOLDS = Posed([X > 1], {GOAL: X > 0})
FAILS = Posed([X > 1], {GOAL: X > 2})


def second_says(verdict: str) -> Certifying:
    """A certificate whose second solver says one thing about everything."""

    def read(script: str, posed: Posed) -> Answers:
        return {label: Answer(verdict, 0.0) for label in posed.labels}

    return Certifying(read)


def of(posed: Posed) -> Question:
    return Question("a question", lambda: posed)


@pytest.mark.parametrize("question", [base_case(), *lemma_questions().values()], ids=lambda q: q.name)
def test_the_text_asks_as_many_questions_as_it_has_answers(question: Question) -> None:
    posed = question.pose()
    assert list(cvc5_reader()(posed.script, posed)) == list(posed.labels)


def test_the_second_solver_denies_what_is_false_and_sees_contradictions() -> None:
    read = cvc5_reader()
    assert {k: a.verdict for k, a in read(FAILS.script, FAILS).items()} == {POSSIBLE: PROVED, GOAL: BROKEN}
    absurd = Posed([X > 1, X < 1], {GOAL: X > 0})
    assert read(absurd.script, absurd)[POSSIBLE].verdict == BROKEN


@pytest.mark.parametrize(("said", "verdict"), [(BROKEN, "disagree"), (UNKNOWN, "unknown"), (PROVED, "agree")])
def test_only_agreement_is_a_certificate(said: str, verdict: str) -> None:
    asker = second_says(said)
    asker.answers(of(HOLDS))
    assert asker.certificate.verdict == verdict
    assert bool(asker.certificate.disputed) == (verdict != "agree")


def test_nothing_asked_is_no_certificate() -> None:
    assert second_says(PROVED).certificate.verdict == "unknown"


def test_an_answer_that_is_missing_is_unknown() -> None:
    assert labelled(HOLDS, [("sat", 0.0)]) == {POSSIBLE: Answer(PROVED, 0.0)}
    assert {a.verdict for a in labelled(HOLDS, [("timeout", 0.0), ("(error)", 0.0)]).values()} == {UNKNOWN}


def test_a_text_that_the_second_solver_cannot_read_is_said_and_certifies_nothing() -> None:
    def read(script: str, posed: Posed) -> Answers:
        raise RuntimeError("Parse Error: question:1.1: what is this")

    asker = Certifying(read)
    asker.answers(of(HOLDS))
    assert asker.certificate.verdict == "unknown"
    assert asker.certificate.errors == ["a question: cvc5: Parse Error: question:1.1: what is this"]


@pytest.mark.parametrize("fault_id", FAULTS)
def test_both_solvers_agree_on_each_fault_and_the_oracle_confirms_the_models(fault_id: str) -> None:
    fault = FAULTS[fault_id]
    asker = Certifying()
    cells = list(induction_step(fault.deviate(), [], asker))
    assert asker.certificate.verdict == "agree"
    assert asker.certificate.confirmed >= sum(cell.verdict == "broken" for cell in cells) > 0


def test_a_model_that_the_oracle_does_not_confirm_is_refuted() -> None:
    """As if Z3 had answered for another rule than the one that runs."""
    fault = FAULTS["F22862b"]
    posed = step_question(fault.deviate()).pose()
    broken = [label for label, answer in ask_z3(posed).items() if answer.verdict == BROKEN]
    assert all(shows(fault.deviate(), posed, label) for label in broken)
    assert not any(shows(ACTIONS[fault.action], posed, label) for label in broken)
    asker = Certifying()
    asker.answers(Question("mixed up", lambda: posed, action=ACTIONS[fault.action]))
    assert asker.certificate.verdict == "disagree"
    assert len(asker.certificate.refuted) == len(broken)


def test_a_run_is_confirmed_only_as_it_was_said() -> None:
    fault = FAULTS["F22862b"]
    run = counterexample(fault)
    faulty = actions_with(fault)
    first = run.steps[0]
    stayed = dataclasses.replace(first, outcome=dataclasses.replace(first.outcome, after=first.outcome.before))
    assert runs_as_said(run, faulty)
    assert not runs_as_said(run, ACTIONS)
    for steps in (run.steps[1:], run.steps[:-1], (), (stayed, *run.steps[1:])):
        assert not runs_as_said(dataclasses.replace(run, steps=steps), faulty)
    for other in ({"broken": {"I1": ""}}, {"page_size": 1}):
        assert not runs_as_said(dataclasses.replace(run, **other), faulty)


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("arrive", {"origin_len": 0}),  # its guard says no
        ("create", {"origin_len": 1, "too_long": False, "logprob": False}),  # there is no session
    ],
)
def test_a_run_with_a_step_that_is_not_allowed_is_not_confirmed(action: str, params: dict[str, Any]) -> None:
    oracle = Oracle.of(1, 3)
    nothing = pristine(oracle.d)
    outcome = oracle.step(ACTIONS[action], nothing, params)
    assert bool(outcome.failed_guards) == ACTIONS[action].applies(oracle.d, nothing)
    assert not runs_as_said(Run(1, 3, (Taken(params, outcome),), outcome.broken(oracle.d)), ACTIONS)
