"""Questions to a solver: what is assumed, what must follow, and the SMT-LIB text that says so to any solver.

Everything that the proof asks is a `Question`, whatever it is about: an induction step, a lemma on pages, a finite twin that
must fail. Who answers is an `Asker`: Z3 afresh, a cache of earlier answers (`model/cache.py`), or two solvers of
which one reads the exported text (`model/certify.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import z3
from pydantic import TypeAdapter

from kvproof.model.ctrl_c import leave_signals_alone, searching
from kvproof.spec.actions import Action
from kvproof.spec.machine import Machine

Label = tuple[str, str]
"""What a goal is about (an invariant, a lemma) and the goal as a sentence."""

# The assumptions themselves have a model: without it every goal would follow from them.
POSSIBLE: Label = ("possible", "the assumptions do not contradict each other")

RLIMIT = 10_000_000
"""Z3's resource units for one check, thirty times what the hardest question needs. Seconds would depend on the machine's load."""

PROVED, BROKEN, UNKNOWN = "proved", "broken", "unknown"
OF_GOAL = {"unsat": PROVED, "sat": BROKEN, "unknown": UNKNOWN}
OF_POSSIBLE = {"sat": PROVED, "unsat": BROKEN, "unknown": UNKNOWN}


@dataclass(frozen=True)
class Posed:
    """A question in terms: each goal, taken alone, must follow from the assumptions.

    `possible` asks as well whether the assumptions have a model; for quantified ones no solver can show it.
    """

    assumptions: Sequence[Any]
    goals: Mapping[Label, Any]
    possible: bool = True

    @property
    def labels(self) -> tuple[Label, ...]:
        return ((POSSIBLE,) if self.possible else ()) + tuple(self.goals)

    @cached_property
    def text(self) -> str:
        """All terms of the question, each once and with its number, the sorts of what is declared, and the labels.

        Two texts are the same only when their answers mean the same.
        """
        whole = (*self.assumptions, *self.goals.values())
        sorts = sorted(line for line in _printed(whole).splitlines() if line.startswith("(declare"))
        counts = f"{len(self.assumptions)} assumptions, possible: {self.possible}"
        return "\n".join([counts, *map(json.dumps, self.labels), *sorts, _numbered(z3.And(*whole))])

    def script(self, label: Label) -> str:
        """What is asked about one label in SMT-LIB 2.6, whole, and the same on every run. It is `expected` to be sat or unsat."""
        return in_smt_lib(*self.assumptions, *(() if label == POSSIBLE else (z3.Not(self.goals[label]),)))


K = TypeVar("K")


def together(asked: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """Goals by name. An action may have an effect twice (two frees), and so the same goal: both must hold."""
    goals: dict[K, Any] = {}
    for name, holds in asked:
        goals[name] = z3.And(goals[name], holds) if name in goals else holds
    return goals


def expected(label: Label) -> str:
    """The solver's word that shows a goal: no model of its denial, or one of the assumptions."""
    return "sat" if label == POSSIBLE else "unsat"


def in_smt_lib(*terms: Any) -> str:
    """Declarations, assertions and `check-sat`, as Z3 prints them: it is asked to simplify nothing.

    Z3 names the parts of a term by what it made before, so the terms are printed in a context of their own.
    """
    alone = z3.Context()
    _, _, text = _printed([term.translate(alone) for term in terms], alone).partition("(set-info :status unknown)\n")
    return f"(set-logic ALL)\n{text}"


def _printed(terms: Iterable[Any], context: z3.Context | None = None) -> str:
    printer = z3.Solver(ctx=context)
    printer.add(*terms)
    return str(printer.to_smt2())


TERM = re.compile(r"#\d+")


def _numbered(term: Any) -> str:
    """A term as Z3 writes it with each part on a line, numbered by the order of these lines and not by Z3's own history."""
    context = term.ctx_ref()
    z3.Z3_set_ast_print_mode(context, z3.Z3_PRINT_LOW_LEVEL)
    try:
        text = z3.Z3_ast_to_string(context, term.as_ast())
    finally:
        z3.Z3_set_ast_print_mode(context, z3.Z3_PRINT_SMTLIB2_COMPLIANT)
    numbers: dict[str, str] = {}
    return TERM.sub(lambda number: numbers.setdefault(number[0], f"#{len(numbers)}"), text)


@dataclass(frozen=True)
class Question:
    """A name for people, and how to pose it; the action that it is about, and its machine (None: the built-in one)."""

    name: str
    pose: Callable[[], Posed]
    action: Action | None = None
    machine: Machine | None = None


@dataclass(frozen=True)
class Answer:
    verdict: str
    seconds: float


T = TypeVar("T")
Answers = dict[Label, Answer]


class Asker:
    """Asks Z3, every time anew."""

    recalls_beside = True
    """Whether `recall` may be called in a thread while questions are asked: then it touches no term of Z3 by itself."""

    def answers(self, question: Question) -> Answers:
        return ask_z3(question.pose())

    def recall(self, what: str, search: Callable[[], T], kept_as: TypeAdapter[T]) -> T:
        """The result of a search that asks no solver. It may be kept, as JSON data of this type; `what` is a name for it."""
        return search()


def ask_z3(posed: Posed, rlimit: int = RLIMIT) -> Answers:
    """Deny each goal in turn."""
    return dict(one_by_one(posed, rlimit))


def one_by_one(posed: Posed, rlimit: int = RLIMIT) -> Iterator[tuple[Label, Answer]]:
    """What Z3 answers, as it comes.

    In a context of its own: how far Z3 gets with quantifiers depends on the terms that a context made before, and an answer
    must not depend on what was asked before.
    """
    alone = z3.Context()
    solver = z3_solver(rlimit, alone)
    solver.add(*(assumption.translate(alone) for assumption in posed.assumptions))
    for label in posed.labels:
        begin = time.perf_counter()
        if label == POSSIBLE:
            verdict = OF_POSSIBLE[checked(solver)]
        else:
            solver.push()
            solver.add(z3.Not(posed.goals[label].translate(alone)))
            verdict = OF_GOAL[checked(solver)]
            solver.pop()
        yield label, Answer(verdict, time.perf_counter() - begin)


def z3_solver(rlimit: int = RLIMIT, context: z3.Context | None = None) -> z3.Solver:
    """A solver that gives up, with `unknown`, after so many resource units a check: the same on every run."""
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", rlimit)
    solver.set("random_seed", 0)
    leave_signals_alone(solver)
    return solver


def checked(solver: z3.Solver, *assumed: Any) -> str:
    """sat, unsat or unknown. `assumed`: flags that hold for this one question."""
    with searching(solver):
        return str(solver.check(*assumed))
