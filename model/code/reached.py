"""Where code and rule differ after a run: a short run of the rules from nothing, whose last action the code does wrong.

The solver's own state is any that the invariants allow, and perhaps no run leads to it. So small instances are explored, and
wherever a run takes the action that the claim is about, the difference is evaluated in the numbers of that state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import z3

from kvproof.model.code.claims import CONFIGURATION, Difference, Failing, Path, Verdict
from kvproof.model.code.paths import solver_under
from kvproof.model.explore import Search, Taken, steps_through, successors, the_search
from kvproof.model.oracle import Oracle
from kvproof.model.questions import checked
from kvproof.model.small_instances import CONFIGS
from kvproof.model.symbolic import PagedLength
from kvproof.spec.actions import Action

INSTANCES = ((1, 3), (2, 4), (4, 6))
"""Page size and row width, in the order in which they are explored, each in every kind of configuration."""
MOST_STATES = 1200
"""Of one instance, breadth first."""
MOST_STATES_IN_ALL = 4500
MOST_ASKED = 750
"""Of one instance: states, and parameters of the action, in which the difference is evaluated."""

Numbers = list[tuple[Any, Any]]
"""Symbols, and the number that each is."""


@dataclass(frozen=True)
class Reached:
    """A statement that fails after a run. The last of `steps` is the action that the claim is about, as the rule has it."""

    path: Path
    difference: Difference
    """In the state before that action."""
    steps: tuple[Taken, ...]


class SmallRuns:
    """The rules on small instances. Each is explored once, when the first claim needs it, and then read by the others."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        search = the_search(actions)
        self._explored = [
            _Explored(Oracle.of(page_size, row_width, actions, **config), search)
            for (page_size, row_width), config in itertools.product(INSTANCES, CONFIGS)
        ]

    def __iter__(self) -> Iterator[_Explored]:
        return iter(self._explored)


class _Explored:
    """One instance: its first states, and the steps from them by one action."""

    def __init__(self, oracle: Oracle, search: Search) -> None:
        self.oracle, self._search = oracle, search

    @cached_property
    def _states(self) -> list[tuple[Any, int]]:
        return self._search.first_states(self.oracle.d, MOST_STATES)

    def steps(self, action: str, most: int) -> Iterator[tuple[int, Taken]]:
        """From each of the first `most` states, which goes by its number."""
        by_it = Oracle(self.oracle.d, {name: rule for name, rule in self.oracle.actions.items() if name == action})
        for number, (state, _) in enumerate(self._states[:most]):
            for step in successors(by_it, state):
                yield number, step

    def path_to(self, number: int) -> tuple[Taken, ...]:
        """The steps from nothing to a state."""
        path = [number]
        while path[-1]:
            path.append(self._states[path[-1]][1])
        return tuple(steps_through(self.oracle, [self._states[one][0] for one in reversed(path)]))


def reached(verdict: Verdict, runs: SmallRuns) -> dict[str, Reached]:
    """Of each sentence that fails the first run on which it does. A sentence that fails on none of these runs is left out."""
    search = _Search(verdict)
    for explored in runs:
        if search.waiting and search.left > 0:
            search.explore(explored)
    return search.found


Waiting = list[tuple[Path, Failing]]
"""Statements that are looked for, each on its path."""


class _Search:
    """What was found so far, and what is looked for still."""

    def __init__(self, verdict: Verdict) -> None:
        self._claim = verdict.claim
        self.waiting: Waiting = [
            (path, d.failing) for path in verdict.paths for d in path.differences if d.failing is not None
        ]
        self.found: dict[str, Reached] = {}
        self.left = MOST_STATES_IN_ALL
        self._solver = solver_under(self.waiting[0][1].assumed if self.waiting else ())

    def explore(self, explored: _Explored) -> None:
        """Takes the runs of one instance, shortest first."""
        oracle = explored.oracle
        instance = self._configuration(oracle)
        if not self._is_possible(instance):
            return
        wanted = _Wanted(self.waiting, instance)
        asked: set[Any] = set()
        last = 0
        for last, step in explored.steps(self._claim.rests_on, self.left):
            # The state and the parameters on which the difference depends.
            key = last, *(step.params[name] for name in self._claim.params if name in step.params)
            if key not in asked:
                asked.add(key)
                numbers = self._numbers(oracle, step)
                if self._add(wanted.that_can_fail(numbers), instance + numbers, explored, last, step):
                    wanted = _Wanted(self.waiting, instance)
            if not self.waiting or len(asked) == MOST_ASKED:
                break
        self.left -= last + 1

    def _is_possible(self, instance: Numbers) -> bool:
        """Whether in this instance some statement fails in a state that the invariants allow."""
        some = z3.Or(*(failing.condition for _, failing in self.waiting))
        return self._model(some, instance) is not None

    def _add(self, failing: Waiting, numbers: Numbers, explored: _Explored, number: int, step: Taken) -> bool:
        """Whether one of these statements fails in the state with this number."""
        shown = [
            Reached(path, one.difference(model), (*explored.path_to(number), step))
            for path, one in failing
            if (model := self._model(one.condition, numbers)) is not None
        ]
        for one in shown:
            self.found.setdefault(one.difference.sentence, one)
        self.waiting = [(path, failing) for path, failing in self.waiting if failing.sentence not in self.found]
        return bool(shown)

    def _model(self, condition: Any, numbers: Numbers) -> z3.ModelRef | None:
        """None as well where the solver gives up: what is not known is not shown."""
        self._solver.push()
        self._solver.add(condition, *(symbol == number for symbol, number in numbers))
        model = self._solver.model() if checked(self._solver) == "sat" else None
        self._solver.pop()
        return model

    def _configuration(self, oracle: Oracle) -> Numbers:
        d = self.waiting[0][1].d
        names = ("page_size", "drafts", *CONFIGURATION)
        return [pair for name in names for pair in _pairs(oracle, getattr(d, name), getattr(oracle.d, name))]

    def _numbers(self, oracle: Oracle, step: Taken) -> Numbers:
        """The state before a step, and the parameters of the step that the claim has."""
        first = self.waiting[0][1]
        symbols = vars(first.d.parameters(self._claim.params))
        return [
            *(
                p
                for name, v in vars(first.before).items()
                for p in _pairs(oracle, v, getattr(step.outcome.before, name))
            ),
            *(p for name, v in symbols.items() if name in step.params for p in _pairs(oracle, v, step.params[name])),
        ]


class _Wanted:
    """The statements that can fail in one instance, as terms in which its numbers are filled in."""

    def __init__(self, waiting: Waiting, instance: Numbers) -> None:
        conditions = ((found, _evaluated(found[1].condition, instance)) for found in waiting)
        self._possible = [(found, condition) for found, condition in conditions if not z3.is_false(condition)]
        self._some = z3.Or(*(condition for _, condition in self._possible))
        self._symbols = _symbols(self._some)
        self._assumed = _evaluated(z3.And(*waiting[0][1].assumed), instance) if waiting else self._some

    def that_can_fail(self, numbers: Numbers) -> Waiting:
        """Those of which the numbers alone do not say that they hold; what the numbers leave open is asked of the solver."""
        used = [pair for pair in numbers if pair[0].get_id() in self._symbols]
        if z3.is_false(_evaluated(self._some, used)) or z3.is_false(_evaluated(self._assumed, numbers)):
            return []
        return [found for found, condition in self._possible if not z3.is_false(_evaluated(condition, used))]


def _pairs(oracle: Oracle, symbol: Any, number: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(symbol, PagedLength):
        yield symbol.pages, z3.IntVal(oracle.d.floor_pages(number))
        yield symbol.offset, z3.IntVal(number % oracle.d.page_size)
    elif isinstance(symbol, z3.BoolRef):
        yield symbol, z3.BoolVal(number)
    else:
        yield symbol, z3.IntVal(number)


def _evaluated(term: Any, numbers: Numbers) -> Any:
    return z3.simplify(z3.substitute(term, *numbers))


def _symbols(term: Any) -> set[int]:
    """The symbols in a term, by their ids."""
    found, seen, waiting = set(), set(), [term]
    while waiting:
        part = waiting.pop()
        if part.get_id() not in seen:
            seen.add(part.get_id())
            waiting += part.children()
            if part.num_args() == 0:
                found.add(part.get_id())
    return found
