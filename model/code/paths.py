"""All paths of a run: each branch on an unknown flag is asked of the solver, and both sides are followed where both can be.

A path is found by running the function again with the choices made so far. What a run asks first is new; all before it is known,
so no question is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import z3

from kvproof.model.code.errors import InfeasibleError, NotUnderstoodError, Place
from kvproof.model.questions import checked, z3_solver

T = TypeVar("T")

MOST_PATHS = 400


@dataclass(frozen=True)
class Branch:
    """A choice that a path made: the flag that was asked, where, and what it was taken to be."""

    flag: Any
    taken: bool
    place: Place | None
    expression: str
    forced: bool
    """The other side is impossible."""

    @property
    def condition(self) -> Any:
        return self.flag if self.taken else z3.Not(self.flag)


@dataclass
class Paths:
    """Explores a function that calls `decide` for each flag it does not know."""

    assumptions: Sequence[Any]
    questions: int = 0
    cut: int = 0
    """Paths that were not followed, because there were too many."""
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._solver = z3_solver()
        self._solver.add(*self.assumptions)
        self._planned: list[Branch] = []

    def all(self, run: Callable[[], T]) -> Iterator[tuple[list[Branch], T]]:
        """The branches and the result of each path of `run`, in the order of the code."""
        waiting: list[list[Branch]] = [[]]
        found = 0
        while waiting:
            if found == MOST_PATHS:
                self.cut += len(waiting)
                return
            self._planned, self.branches = waiting.pop(), []
            self._solver.push()
            try:
                result = run()
            finally:
                self._solver.pop()
            found += 1
            fresh = range(len(self._planned), len(self.branches))
            waiting += [self._turned(n) for n in fresh if not self.branches[n].forced]
            yield list(self.branches), result

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
        self._solver.add(branch.condition)
        self.branches.append(branch)
        return branch.taken

    def _ask(self, flag: Any, place: Place | None, expression: str) -> Branch:
        can_hold, can_fail = self._can(flag), self._can(z3.Not(flag))
        return Branch(flag, can_hold, place, expression, forced=not (can_hold and can_fail))

    def _can(self, condition: Any) -> bool:
        self.questions += 1
        self._solver.push()
        self._solver.add(condition)
        answer = checked(self._solver)
        self._solver.pop()
        if answer == "unknown":
            raise NotUnderstoodError("the solver does not know whether this branch can be taken")
        return answer == "sat"

    def assume(self, condition: Any) -> None:
        """Goes on only in states in which the condition holds. Raises InfeasibleError where none is left."""
        is_new = len(self.branches) >= len(self._planned)
        if is_new and not self._can(condition):
            raise InfeasibleError
        self._solver.add(condition)
        self.branches.append(Branch(condition, True, None, "", forced=True))

    def is_possible(self) -> bool:
        """Whether there is a state that the path, or before the first path the assumptions, allow."""
        return self._can(z3.BoolVal(True))

    def must(self, condition: Any) -> bool:
        """Whether the condition holds in every state that takes this path."""
        return not self._can(z3.Not(condition))
