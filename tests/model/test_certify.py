"""Two solvers must agree, of which one reads text only; every counterexample must hold in plain numbers.

That both prove everything is in `test_prove.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import z3

pytest.importorskip("cvc5")

from kvproof.model.certify import Certifying, Said, Solver, cvc5_solver, runs_as_said, shows, z3_of_text
from kvproof.model.explore import Run, Taken, counterexample
from kvproof.model.oracle import Oracle
from kvproof.model.prove import base_case, induction_step, step_question
from kvproof.model.questions import BROKEN, POSSIBLE, UNKNOWN, Posed, Question, ask_z3
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS, actions_with
from kvproof.spec.state import pristine

X = z3.Int("x")
GOAL = ("I1", "x is positive")
HOLDS = Posed([X > 1], {GOAL: X > 0})
FAILS = Posed([X > 1], {GOAL: X > 2})


def second_says(word: str) -> Certifying:
    """A certificate whose second solver says one word about everything."""
    return Certifying(lambda text: Said(word))


def of(posed: Posed) -> Question:
    return Question("a question", lambda: posed)


@pytest.mark.parametrize("solver", [z3_of_text, cvc5_solver(), cvc5_solver(proofs=True)])
def test_a_text_alone_says_what_is_true_and_what_is_false(solver: Solver) -> None:
    absurd = Posed([X > 1, X < 1], {GOAL: X > 0})
    said = [[solver(posed.script(label)).word for label in posed.labels] for posed in (HOLDS, FAILS, absurd)]
    assert said == [["sat", "unsat"], ["sat", "sat"], ["unsat", "unsat"]]


@pytest.mark.parametrize("solver", [z3_of_text, cvc5_solver()])
def test_what_an_answer_took_is_the_same_each_time(solver: Solver) -> None:
    text = base_case().pose().script(POSSIBLE)
    assert solver(text).rlimit == solver(text).rlimit > 0


def test_beyond_the_limit_nothing_is_said() -> None:
    pigeons = [z3.Or(*(z3.Bool(f"{p} in {h}") for h in range(9))) for p in range(10)]
    alone = [
        z3.Not(z3.And(z3.Bool(f"{p} in {h}"), z3.Bool(f"{q} in {h}")))
        for h in range(9)
        for p in range(10)
        for q in range(p)
    ]
    text = Posed([*pigeons, *alone], {}).script(POSSIBLE)
    assert z3_of_text(text, rlimit=1000).verdict(POSSIBLE) == UNKNOWN


def test_cvc5_proves_only_what_is_unsat() -> None:
    solve = cvc5_solver(proofs=True)
    assert solve(HOLDS.script(POSSIBLE)).proof == ""
    proof = solve(HOLDS.script(GOAL)).proof
    assert proof.startswith(("(define ", "(assume "))
    assert proof.splitlines()[-1].startswith("(step ") and " false " in proof.splitlines()[-1]


@pytest.mark.parametrize(
    ("word", "verdict"), [("sat", "disagree"), ("unknown", "unknown"), ("timeout", "unknown"), ("", "unknown")]
)
def test_only_agreement_is_a_certificate(word: str, verdict: str) -> None:
    asker = second_says(word)
    asker.answers(of(Posed([X > 1], {GOAL: X > 0}, possible=False)))
    assert asker.certificate.verdict == verdict
    assert asker.certificate.disputed


def test_agreement_is_one() -> None:
    asker = second_says("unsat")
    asker.answers(of(Posed([X > 1], {GOAL: X > 0}, possible=False)))
    assert asker.certificate.verdict == "agree"


def test_nothing_asked_is_no_certificate() -> None:
    assert second_says("unsat").certificate.verdict == "unknown"


def test_a_text_that_the_second_solver_cannot_read_is_said_and_certifies_nothing() -> None:
    def solve(text: str) -> Said:
        raise RuntimeError("Parse Error: question:1.1: what is this")

    asker = Certifying(solve)
    asker.answers(of(HOLDS))
    assert asker.certificate.verdict == "unknown"
    assert set(asker.certificate.errors) == {"a question: cvc5: Parse Error: question:1.1: what is this"}


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
    assert all(shows(step_question(fault.deviate()), posed, label) for label in broken)
    assert not any(shows(step_question(ACTIONS[fault.action]), posed, label) for label in broken)
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
