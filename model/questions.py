"""Questions to a solver: what is assumed, what must follow, and the SMT-LIB text that says so to any solver.

Everything that the proof asks is a `Question`, whatever it is about: an induction step, a lemma on pages, a finite twin that
must fail. Who answers is an `Asker`: Z3 afresh, a cache of earlier answers (`model/cache.py`), or two solvers of
which one reads the exported text (`model/certify.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import z3
from pydantic import TypeAdapter

from kvproof.model.ctrl_c import leave_signals_alone, searching
from kvproof.spec.actions import Action

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

        It is the same on every run, which an SMT-LIB text is not: there Z3 names a term twice or writes it twice, as other
        questions have it or not. Two texts are the same only when their answers mean the same.
        """
        terms = _numbered(z3.And(*self.assumptions, *self.goals.values()))
        sorts = sorted(line for line in self._facts.splitlines() if line.startswith("(declare"))
        counts = f"{len(self.assumptions)} assumptions, possible: {self.possible}"
        return "\n".join([counts, *map(json.dumps, self.labels), *sorts, terms])

    @cached_property
    def _facts(self) -> str:
        """The assumptions in SMT-LIB 2.6, and each goal denied by a flag of its own."""
        solver = z3.Solver()
        solver.add(*self.assumptions)
        denials = [z3.Bool(f"denied!{number}") for number in range(len(self.goals))]
        solver.add(*(z3.Implies(d, z3.Not(goal)) for d, goal in zip(denials, self.goals.values(), strict=True)))
        return str(solver.to_smt2().replace("(check-sat)\n", ""))

    @property
    def script(self) -> str:
        """The question in SMT-LIB 2.6: one `check-sat` for each label, in their order."""
        denials = [f"denied!{number}" for number in range(len(self.goals))]
        asked = ["(check-sat)"] if self.possible else []
        asked += [f"(check-sat-assuming ({denied}))" for denied in denials]
        checks = [f"; {json.dumps(label)}\n{check}" for label, check in zip(self.labels, asked, strict=True)]
        return "\n".join(["(set-logic ALL)", self._facts, *checks, ""])


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
    """A name for people, and how to pose it."""

    name: str
    pose: Callable[[], Posed]
    action: Action | None = None


@dataclass(frozen=True)
class Answer:
    verdict: str
    seconds: float


T = TypeVar("T")
Answers = dict[Label, Answer]


class Asker:
    """Asks Z3, every time anew."""

    def answers(self, question: Question) -> Answers:
        return ask_z3(question.pose())

    def recall(self, what: str, search: Callable[[], T], kept_as: TypeAdapter[T]) -> T:
        """The result of a search that asks no solver. It may be kept, as JSON data of this type; `what` is a name for it."""
        return search()


def ask_z3(posed: Posed, rlimit: int = RLIMIT) -> Answers:
    """Deny each goal in turn."""
    solver = z3_solver(rlimit)
    solver.add(*posed.assumptions)
    found: Answers = {}
    for label in posed.labels:
        begin = time.perf_counter()
        if label == POSSIBLE:
            verdict = OF_POSSIBLE[checked(solver)]
        else:
            solver.push()
            solver.add(z3.Not(posed.goals[label]))
            verdict = OF_GOAL[checked(solver)]
            solver.pop()
        found[label] = Answer(verdict, time.perf_counter() - begin)
    return found


def z3_solver(rlimit: int = RLIMIT) -> z3.Solver:
    """A solver that gives up, with `unknown`, after so many resource units a check: the same on every run."""
    solver = z3.Solver()
    solver.set("rlimit", rlimit)
    solver.set("random_seed", 0)
    leave_signals_alone(solver)
    return solver


def checked(solver: z3.Solver, *assumed: Any) -> str:
    """sat, unsat or unknown. `assumed`: flags that hold for this one question."""
    with searching(solver):
        return str(solver.check(*assumed))
