"""What is asked of a solver is all that is meant, and a Ctrl-C stays one."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import z3

from kvproof.model.ctrl_c import heed, kept_ctrl_c
from kvproof.model.liveness import pose
from kvproof.model.page_lemmas import lemma_questions, twin_questions
from kvproof.model.prove import Interrupted, _goals, induction_step, prove, step_question
from kvproof.model.questions import (
    BROKEN,
    POSSIBLE,
    PROVED,
    UNKNOWN,
    Answers,
    Asker,
    Posed,
    Question,
    ask_z3,
    checked,
    z3_solver,
)
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import ACTIONS, Guard
from kvproof.spec.effects import Condition
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.liveness import STAGES
from kvproof.spec.machine import LEDGER
from kvproof.spec.state import pristine

X = z3.Int("x")


@pytest.fixture(autouse=True)
def _listens_to_ctrl_c() -> Iterator[None]:
    """Whoever runs the tests in the background may have told them to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pigeons(holes: int) -> list[z3.BoolRef]:
    """One more pigeon than holes: unsatisfiable, and hopeless for a SAT solver from a dozen on."""
    at = [[z3.Bool(f"at {p} {h}") for h in range(holes)] for p in range(holes + 1)]
    alone = [z3.Not(z3.And(at[p][h], at[q][h])) for h in range(holes) for p in range(holes + 1) for q in range(p)]
    return [*(z3.Or(row) for row in at), *alone]


def test_each_goal_is_taken_alone() -> None:
    posed = Posed([X > 1], {("I1", "a"): X > 2, ("I1", "b"): X < 3, ("I1", "c"): X > 0})
    assert [a.verdict for a in ask_z3(posed).values()] == [PROVED, BROKEN, BROKEN, PROVED]


def of_one_part(*terms: z3.ExprRef) -> list[z3.ExprRef]:
    """Conjunctions and disjunctions of fewer than two, which SMT-LIB does not have."""
    seen, left, found = set(), list(terms), []
    while left:
        term = left.pop()
        if term.get_id() not in seen:
            seen.add(term.get_id())
            left += [term.body()] if z3.is_quantifier(term) else term.children()
            if (z3.is_and(term) or z3.is_or(term)) and term.num_args() < 2:
                found.append(term)
    return found


def test_every_solver_can_read_what_is_asked() -> None:
    assert len(of_one_part(z3.ForAll([X], z3.Not(z3.And(X > 1))))) == 1
    stages = [Question(stage.waits_for, partial(pose, stage, LEDGER)) for stage in STAGES]
    twins = [question for _, question in twin_questions()]
    for question in (*stages, *twins, *lemma_questions().values(), *map(step_question, ACTIONS.values())):
        posed = question.pose()
        assert of_one_part(*posed.assumptions, *posed.goals.values()) == [], question.name


def test_contradicting_assumptions_are_seen() -> None:
    posed = Posed([X > 1, X < 1], {("I1", "a"): X > 2})
    assert [a.verdict for a in ask_z3(posed).values()] == [BROKEN, PROVED]


def test_no_answer_within_the_limit_is_unknown() -> None:
    answers = ask_z3(Posed(pigeons(13), {}), rlimit=50_000)
    assert answers[POSSIBLE].verdict == UNKNOWN


@pytest.mark.parametrize("pushed", [False, True])
def test_ctrl_c_inside_the_solver_ends_its_search_at_once(pushed: bool) -> None:
    solver = z3_solver()
    if pushed:  # as for one goal of several
        solver.push()
    solver.add(pigeons(13))
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), kept_ctrl_c():
        checked(solver)


def test_ctrl_c_in_a_search_that_answers_all_the_same_is_not_lost() -> None:
    """So it is with nearly every question of the proof: a few milliseconds."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), kept_ctrl_c():
        for holes in range(10_000):
            solver = z3_solver()
            solver.add(pigeons(5 + holes % 3))
            checked(solver)


class PressesCtrlC:
    """Where the exception of a signal is raised, Python drops it: it only writes that it was ignored."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_in_a_destructor_stops_the_proof_at_the_next_question() -> None:
    solver, asked = z3_solver(), 0
    with pytest.raises(KeyboardInterrupt), kept_ctrl_c():
        while asked < 3:
            checked(solver)
            asked += 1
            PressesCtrlC()
    assert asked == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heed()  # it was heeded once: the next proof is not stopped by it


def test_ctrl_c_in_the_code_of_z3_leaves_no_half_object(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = []
    with pytest.raises(KeyboardInterrupt), kept_ctrl_c():
        with monkeypatch.context() as pressed:
            pressed.setattr(
                z3.z3, "z3_debug", partial(signal.raise_signal, signal.SIGINT)
            )  # called by its constructors
            contexts.append(z3.Context())
        checked(z3_solver())
        pytest.fail("the next question heeds it")
    assert contexts[0].owner


def test_a_condition_that_stands_twice_must_hold_twice() -> None:
    """An action with two frees has each sentence of a free twice."""
    d = Symbols()
    p = z3.Bool("p")
    twice = (
        Condition("I4", p, "a free starts on a page boundary"),
        Condition("I4", z3.BoolVal(True), "a free starts on a page boundary"),
    )
    goals = _goals(d, INVARIANTS["I4"], pristine(d), twice)
    posed = Posed([], {("I4", sentence): goal for sentence, goal in goals.items()}, possible=False)
    assert BROKEN in {a.verdict for a in ask_z3(posed).values()}


class StopsAt(Asker):
    def __init__(self, name: str) -> None:
        self.name = name

    def answers(self, question: Question) -> Answers:
        if question.name == self.name:
            raise KeyboardInterrupt
        return super().answers(question)


def test_an_interrupted_proof_keeps_its_part_and_is_no_proof() -> None:
    last = list(ACTIONS)[3]
    with pytest.raises(Interrupted) as stop:
        prove(asker=StopsAt(f"induction: {last}"))
    proof = stop.value.proof
    assert {o.action for o in proof.obligations} == {"(initial)", *list(ACTIONS)[:3]}
    assert {o.verdict for o in proof.obligations} == {"proved"}
    assert proof.verdict == "unknown"


def test_a_rule_whose_guards_contradict_is_vacuous() -> None:
    action = ACTIONS["close"]

    def run(d, s, p):
        step = action.run(d, s, p)
        return dataclasses.replace(step, guards=(*step.guards, Guard("never", d.false)))

    vacuous: list[str] = []
    list(induction_step(dataclasses.replace(action, run=run), vacuous))
    assert vacuous == ["close: its guards contradict the invariants"]
