"""All paths of a run: each branch on an unknown flag is asked of the solver, and both sides are followed where both can be.

A path is found by running the function again with the choices made so far. What a run asks first is new; all before it is known,
so no question is asked twice. Nor is one whose answer an earlier one gives: a path keeps a state that takes it, in which a flag
is evaluated, and conditions that exclude each other are kept for the other paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import z3

from kvproof.model.code.errors import InfeasibleError, NotUnderstoodError, Place
from kvproof.model.questions import checked, z3_solver

T = TypeVar("T")

MOST_PATHS = 400
MOST_CONDITIONS = 50
"""That one solver knows."""
OLDER_SIMPLEX = 2
"""Z3's name for its first solver of linear arithmetic, which answers these many small questions in half the time."""


def solver_under(assumptions: Sequence[Any]) -> z3.Solver:
    """A solver for many small questions under the same assumptions."""
    solver = z3_solver()
    solver.set("arith.solver", OLDER_SIMPLEX)
    solver.add(*assumptions)
    return solver


@dataclass(frozen=True)
class Branch:
    """A choice that a path made: the flag that was asked, where, and what it was taken to be."""

    flag: Any
    taken: bool
    place: Place | None
    expression: str
    forced: bool
    """The other side is impossible."""
    other: z3.ModelRef | None = None
    """A state that takes the path up to here, and the other side."""

    @cached_property
    def condition(self) -> Any:
        return self.flag if self.taken else z3.Not(self.flag)


@dataclass
class Paths:
    """Explores a function that calls `decide` for each flag it does not know."""

    assumptions: Sequence[Any]
    cut: int = 0
    """Paths that were not followed: there were too many, or nobody asked for them."""
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._facts = Facts(self.assumptions)
        self._planned: list[Branch] = []
        self._taken: dict[int, Any] = {}
        """The conditions of the branches so far, by the numbers of their terms."""
        self._state: z3.ModelRef | None = None
        """One that takes the path that is planned and, behind it, the path so far."""

    @property
    def questions(self) -> int:
        return self._facts.questions

    def all(self, run: Callable[[], T]) -> Iterator[tuple[list[Branch], T]]:
        """The branches and the result of each path of `run`, in the order of the code."""
        waiting: list[tuple[list[Branch], z3.ModelRef | None]] = [([], None)]
        found = 0
        while waiting:
            if found == MOST_PATHS:
                self.cut += len(waiting)
                return
            self._planned, state = waiting.pop()
            self.along((), state)
            result = run()
            found += 1
            fresh = range(len(self._planned), len(self.branches))
            waiting += [(self._turned(n), self.branches[n].other) for n in fresh if not self.branches[n].forced]
            yield list(self.branches), result

    def along(self, branches: Sequence[Branch], state: z3.ModelRef | None = None) -> None:
        """Begins anew, with these branches taken. `state`: one that takes them, and those that are planned."""
        self.branches, self._taken, self._state = [], {}, state
        for branch in branches:
            self._take(branch)

    def _turned(self, number: int) -> list[Branch]:
        """The choices up to this one, and this one the other way."""
        last = self.branches[number]
        return [*self.branches[:number], Branch(last.flag, not last.taken, last.place, last.expression, False)]

    def decide(self, flag: Any, place: Place | None = None, expression: str = "") -> bool:
        """Whether the flag holds on this path. Raises NotUnderstoodError where the solver gives up."""
        if isinstance(flag, bool):
            return flag
        if z3.is_true(flag) or z3.is_false(flag):
            return bool(z3.is_true(flag))
        number = len(self.branches)
        branch = self._planned[number] if number < len(self._planned) else self._ask(flag, place, expression)
        if not branch.flag.eq(flag):
            raise NotUnderstoodError("a run that asks something else when it is repeated", place, expression)
        self._take(branch)
        return branch.taken

    def _take(self, branch: Branch) -> None:
        condition = branch.condition
        self._taken[condition.get_id()] = condition
        self.branches.append(branch)

    def _ask(self, flag: Any, place: Place | None, expression: str) -> Branch:
        holds, fails = self._with(flag), self._with(z3.Not(flag))
        self._state = holds or fails
        other = fails if holds is not None else None
        return Branch(flag, holds is not None, place, expression, forced=holds is None or fails is None, other=other)

    def _with(self, condition: Any) -> z3.ModelRef | None:
        """A state that takes this path and in which the condition holds; None where there is none."""
        if self._state is not None and z3.is_true(self._state.eval(condition, model_completion=True)):
            return self._state
        return self._facts.model(self._taken, condition)

    def assume(self, condition: Any) -> None:
        """Continues only in states in which the condition holds. Raises InfeasibleError where none is left."""
        if len(self.branches) >= len(self._planned):
            self._state = self._with(condition)
            if self._state is None:
                raise InfeasibleError
        self._take(Branch(condition, True, None, "", forced=True))

    def is_possible(self) -> bool:
        """Whether there is a state that the path, or before the first path the assumptions, allow."""
        return self._with(z3.BoolVal(True)) is not None

    def must(self, condition: Any) -> bool:
        """Whether the condition holds in every state that takes this path. Raises NotUnderstoodError where nobody can tell."""
        return self._with(z3.Not(condition)) is None


class Facts:
    """What is assumed of every path, and which conditions exclude each other under it.

    A condition is assumed by a flag of its own, so that the solver keeps what it learned from one question for the next, and
    says which of the conditions made the answer. A solver that knows many conditions is slow also where few of them are assumed:
    now and then a new one takes its place.
    """

    def __init__(self, assumptions: Sequence[Any]) -> None:
        self.questions = 0
        self._assumptions = assumptions
        self._conditions: dict[int, Any] = {}
        """Each condition by the number of its term, which is its own only while the term lives."""
        self._excluded: dict[int, list[frozenset[int]]] = defaultdict(list)
        self._begin()

    def _begin(self) -> None:
        self._solver = solver_under(self._assumptions)
        self._flags: dict[int, Any] = {}
        """Of each condition that the solver knows."""
        self._numbers: dict[int, int] = {}
        """Of each flag, the number of its condition."""

    def model(self, taken: Mapping[int, Any], condition: Any) -> z3.ModelRef | None:
        """A state in which all hold, or None. Raises NotUnderstoodError where the solver gives up."""
        key = condition.get_id()
        if any(core <= taken.keys() for core in self._excluded[key]):
            return None
        if len(self._flags) > MOST_CONDITIONS:
            self._begin()
        self.questions += 1
        answer = checked(self._solver, *dict.fromkeys(map(self._flag, (*taken.values(), condition))))
        if answer == "sat":
            return self._solver.model()
        if answer == "unknown":
            raise NotUnderstoodError("the solver does not know whether this branch can be taken")
        core = frozenset(self._numbers[flag.get_id()] for flag in self._solver.unsat_core())
        self._excluded[key].append(core - {key})
        return None

    def _flag(self, condition: Any) -> Any:
        number = condition.get_id()
        if number not in self._flags:
            self._conditions[number] = condition
            flag = self._flags[number] = z3.Bool(f"condition {number}")
            self._numbers[flag.get_id()] = number
            self._solver.add(z3.Implies(flag, condition))
        return self._flags[number]
