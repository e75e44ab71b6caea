"""Bounded search: all reachable states of a small instance, breadth first, over the same rules that are proven.

Gives what induction cannot: the shortest run that breaks an invariant, whether each action can ever happen, whether every
turn can still end, and the number of reachable states, which tests pin.

There are two searches, which take the same steps in the same order: `Compiled` where llvmlite and numpy are installed, else
`Interpreted`. A run that the compiled one finds is taken again, step by step, by the interpreted rules.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kvproof.model.compiled.machine_code import is_installed
from kvproof.model.compiled.search import BEYOND_A_BYTE, FOUND, FULL, CompiledRules, Reached, counts_of
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.model.small_instances import LARGE, SMALL, Instances, parameters
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import LEDGER, Machine
from kvproof.spec.state import NONE

# Small instances (page size, row width), in the order in which a counterexample is looked for.
INSTANCES: tuple[tuple[int, int], ...] = ((1, 3), (1, 4), (1, 6), (2, 4), (2, 5), (2, 6), (3, 6))
MOST_STEPS = 16
WALK_STEPS = 4
NUMBERS = range(-128, 128)
"""What a state may hold. The right rules stay far below, wrong ones may count without end."""
BEYOND_NUMBERS = f"a number beyond {max(NUMBERS)}"
Situation = Callable[[Any, Any], Any]
"""A predicate of a state, over the number domain."""


class TooManyStatesError(Exception):
    """An instance has more states than a search goes through, or a number that grows and grows: it was not explored whole."""


def _more_than(most: int) -> str:
    return f"more than {most:,} states"


@dataclass(frozen=True)
class Taken:
    """A step of a run: the action, its parameters and what came of it."""

    params: dict[str, Value]
    outcome: Outcome


@dataclass(frozen=True)
class Run:
    """A shortest run from the initial state; its last step breaks the invariants named."""

    page_size: int
    row_width: int
    steps: tuple[Taken, ...]
    broken: dict[str, str]
    config: Mapping[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Reachable:
    """What a whole small instance holds. `stuck`: states with a turn, or of a session, that no run can bring to its end."""

    page_size: int
    row_width: int
    config: Mapping[str, int | bool]
    states: int
    depth: int
    taken: dict[str, int]
    stuck: int


def successors(oracle: Oracle, s: Any) -> Iterator[Taken]:
    """Every enabled step from a state."""
    for action in oracle.actions.values():
        if not action.applies(oracle.d, s):
            continue
        for params in parameters(action, oracle.d.row_width):
            outcome = oracle.allowed_step(action, s, params)
            if outcome is not None:
                yield Taken(params, outcome)


def breadth_first(oracle: Oracle, machine: Machine, depth: int | None = None) -> Iterator[tuple[Taken, bool]]:
    """Every step from every state within `depth` steps of the start (None: all there are), and whether it leads to a new state.

    A step is a shortest way to its new state: no state is met a step later than it can be. Raises TooManyStatesError.
    """
    seen = {machine.start(oracle.d)}
    frontier = list(seen)
    while frontier and depth != 0:
        reached = []
        for step in (step for state in frontier for step in successors(oracle, state)):
            is_new = step.outcome.after not in seen
            if is_new and not all(number in NUMBERS for number in vars(step.outcome.after).values()):
                raise TooManyStatesError(BEYOND_NUMBERS)
            yield step, is_new
            if is_new:
                if len(seen) == Interpreted.most_states:
                    raise TooManyStatesError(_more_than(Interpreted.most_states))
                seen.add(step.outcome.after)
                reached.append(step.outcome.after)
        frontier = reached
        depth = None if depth is None else depth - 1


def states(oracle: Oracle, machine: Machine = LEDGER, depth: int | None = None) -> Iterator[Any]:
    """The reachable states of a machine, breadth first, each once."""
    yield machine.start(oracle.d)
    yield from (step.outcome.after for step, is_new in breadth_first(oracle, machine, depth) if is_new)


@dataclass(frozen=True)
class Whole:
    """What a search finds in all states of an instance. `met`: in how many of them each situation is."""

    states: int
    depth: int
    taken: dict[str, int]
    stuck: int
    met: list[int]


class Search(ABC):
    """The rules of a machine, searched breadth first."""

    most_states: int
    """Of one instance."""

    def __init__(self, actions: Mapping[str, Action] = ACTIONS, machine: Machine = LEDGER) -> None:
        self.actions, self.machine = actions, machine

    @abstractmethod
    def whole(self, d: Integers, situations: Sequence[Situation] = ()) -> Whole:
        """All reachable ledgers. Raises AssertionError if one breaks an invariant, and TooManyStatesError."""

    @abstractmethod
    def shortest(self, d: Integers, invariant: str | None = None) -> tuple[Taken, ...] | None:
        """The shortest run that breaks `invariant` (None: any), of at most `MOST_STEPS`; None if there is none."""

    @abstractmethod
    def first_states(self, d: Integers, most: int) -> list[tuple[Any, int]]:
        """The first states within `MOST_STEPS` of the start, each with the place in the list of the one that it was reached
        from."""


class Interpreted(Search):
    """The rules as Python: they are the oracle of the compiled search."""

    most_states = 100_000

    def whole(self, d: Integers, situations: Sequence[Situation] = ()) -> Whole:
        oracle = Oracle(d, self.actions)
        start = LEDGER.start(oracle.d)
        sources: dict[Any, list[Any]] = {start: []}
        depths = {start: 0}
        taken = dict.fromkeys(oracle.actions, 0)
        for step, is_new in breadth_first(oracle, LEDGER):
            before, after = step.outcome.before, step.outcome.after
            taken[step.outcome.action.name] += 1
            # A state that was met before keeps the invariants; what can still fail is this way of getting there.
            _require_unbroken(step, step.outcome.broken(d, INVARIANTS if is_new else {}))
            if is_new:
                sources[after], depths[after] = [], depths[before] + 1
            sources[after].append(before)
        turn_ends = _can_reach(sources, lambda state: state.phase == NONE)
        session_ends = _can_reach(sources, lambda state: not state.is_open)
        stuck = len(sources) - len(turn_ends & session_ends)
        met = [sum(bool(holds(d, state)) for state in sources) for holds in situations]
        return Whole(len(sources), max(depths.values()), taken, stuck, met)

    def shortest(self, d: Integers, invariant: str | None = None) -> tuple[Taken, ...] | None:
        def is_wanted(step: Taken) -> bool:
            broken = step.outcome.broken(d, self.machine.invariants)
            return bool(broken) and (invariant is None or invariant in broken)

        return first_steps(Oracle(d, self.actions), self.machine, is_wanted)

    def first_states(self, d: Integers, most: int) -> list[tuple[Any, int]]:
        start = self.machine.start(d)
        found, places = [(start, 0)], {start: 0}
        with suppress(TooManyStatesError):
            for step, is_new in breadth_first(Oracle(d, self.actions), self.machine, MOST_STEPS):
                if is_new and len(found) == most:
                    break
                if is_new:
                    places[step.outcome.after] = len(found)
                    found.append((step.outcome.after, places[step.outcome.before]))
        return found


class Compiled(Search):
    """The rules as machine code: some hundred times as fast."""

    most_states = 2_000_000

    def __init__(self, actions: Mapping[str, Action] = ACTIONS, machine: Machine = LEDGER) -> None:
        super().__init__(actions, machine)
        self._rules = CompiledRules(machine, actions)

    def whole(self, d: Integers, situations: Sequence[Situation] = ()) -> Whole:
        found = self._searched(d, wanted=None, keep_edges=True)
        if found.stop == FOUND:
            (*_, last) = self._taken_again(d, found, None)
            _require_unbroken(last, last.outcome.broken(d, self.machine.invariants))
        ends = (found.column("phase") == NONE) + 2 * (found.column("is_open") == 0)
        stuck = int((found.from_which_some_run_reaches(ends.astype("uint8")) != 3).sum())
        return Whole(len(found.states), found.depth, found.taken, stuck, counts_of(found, d, situations))

    def shortest(self, d: Integers, invariant: str | None = None) -> tuple[Taken, ...] | None:
        with suppress(TooManyStatesError):
            found = self._searched(d, MOST_STEPS, None if invariant is None else (invariant,))
            if found.stop == FOUND:
                return self._taken_again(d, found, invariant)
        return None

    def first_states(self, d: Integers, most: int) -> list[tuple[Any, int]]:
        found = self._rules.search(d, most, MOST_STEPS)
        return [
            (found.layout.state_of(row), source)
            for row, source in zip(found.states.tolist(), found.sources.tolist(), strict=True)
        ]

    def _searched(self, d: Integers, *args: Any, **named: Any) -> Reached:
        found = self._rules.search(d, self.most_states, *args, **named)
        if found.stop in (FULL, BEYOND_A_BYTE):
            raise TooManyStatesError(_more_than(self.most_states) if found.stop == FULL else BEYOND_NUMBERS)
        return found

    def _taken_again(self, d: Integers, found: Reached, invariant: str | None) -> tuple[Taken, ...]:
        """The run to where a search stopped, and the first step from there that breaks the invariant (None: any)."""
        oracle, states = Oracle(d, self.actions), found.path()

        def is_broken(outcome: Outcome) -> bool:
            broken = outcome.broken(d, self.machine.invariants)
            return bool(broken) if invariant is None else invariant in broken

        return (*steps_through(oracle, states), _step_of(oracle, states[-1], is_broken))


def steps_through(oracle: Oracle, states: Sequence[Any]) -> Iterator[Taken]:
    """From each of these states the first step that leads to the next one. Raises AssertionError if there is none."""
    for before, after in itertools.pairwise(states):
        yield _step_of(oracle, before, lambda outcome, after=after: outcome.after == after)  # type: ignore[misc]


def _step_of(oracle: Oracle, state: Any, is_wanted: Callable[[Outcome], bool]) -> Taken:
    """The first wanted step from a state. Raises AssertionError if there is none: then machine code and rules disagree."""
    step = next((step for step in successors(oracle, state) if is_wanted(step.outcome)), None)
    assert step is not None, f"the compiled rules take a step that the rules do not take, from {state}"
    return step


def the_search(actions: Mapping[str, Action] = ACTIONS, machine: Machine = LEDGER) -> Search:
    """The compiled one where what it needs is installed."""
    return (Compiled if is_installed() else Interpreted)(actions, machine)


def explored_whole(interpreted: tuple[Instances, ...] = (SMALL,)) -> tuple[Instances, ...]:
    """The instances of a proof, in groups. Where the search is interpreted they are these: the large ones would take an hour."""
    return (SMALL, *LARGE) if is_installed() else interpreted


def _require_unbroken(step: Taken, broken: Mapping[str, str]) -> None:
    assert not broken, (step, broken)


def reach(page_size: int, row_width: int, actions: Mapping[str, Action] = ACTIONS, **config: Any) -> Reachable:
    """All reachable ledgers, with `Search.whole`."""
    found = the_search(actions).whole(Integers(page_size, row_width, **config))
    return Reachable(page_size, row_width, config, found.states, found.depth, found.taken, found.stuck)


@dataclass(frozen=True)
class Walk:
    """What a small machine holds within `WALK_STEPS` of its start; those with counters have no end of states."""

    states: int
    taken: dict[str, int]


def walk(machine: Machine) -> Walk:
    """The first states of a machine beside the ledger, and how often each of its actions was taken on the way."""
    steps = list(breadth_first(Oracle.of(1, 3, machine.actions), machine, WALK_STEPS))
    taken = Counter(step.outcome.action.name for step, _ in steps)
    return Walk(1 + sum(is_new for _, is_new in steps), {name: taken[name] for name in machine.actions})


def _can_reach(sources: Mapping[Any, list[Any]], is_end: Callable[[Any], bool]) -> set[Any]:
    """States from which some run reaches an end (I18): backwards from the ends."""
    ends = deque(filter(is_end, sources))
    found = set(ends)
    while ends:
        for source in sources[ends.popleft()]:
            if source not in found:
                found.add(source)
                ends.append(source)
    return found


def shortest_run(fault: Fault, page_size: int, row_width: int, invariant: str | None = None) -> Run | None:
    """The shortest run that breaks `invariant` (or any) with the fault on; None when the instance has none."""
    actions = actions_with(fault, fault.machine)
    return shortest_run_of(actions, page_size, row_width, invariant, fault.machine, **fault.config)


def shortest_run_of(
    actions: Mapping[str, Action],
    page_size: int,
    row_width: int,
    invariant: str | None = None,
    machine: Machine = LEDGER,
    **config: Any,
) -> Run | None:
    """The shortest run of these rules that breaks `invariant` (or any); None when the instance has none.

    Bounded to `MOST_STEPS` and the `most_states` of the search, because a machine with counters has no end of states.
    """
    d = Integers(page_size, row_width, **config)
    steps = the_search(actions, machine).shortest(d, invariant)
    if steps is None:
        return None
    return Run(page_size, row_width, steps, steps[-1].outcome.broken(d, machine.invariants), config)


def first_steps(oracle: Oracle, machine: Machine, is_wanted: Callable[[Taken], bool]) -> tuple[Taken, ...] | None:
    """The shortest run to a wanted step; None where no run of at most `MOST_STEPS` has one, as far as all are searched."""
    arrived_by: dict[Any, Taken] = {}
    with suppress(TooManyStatesError):
        for step, is_new in breadth_first(oracle, machine, MOST_STEPS):
            if is_wanted(step):
                return (*path_to(arrived_by, step.outcome.before), step)
            if is_new:
                arrived_by[step.outcome.after] = step
    return None


def path_to(arrived_by: Mapping[Any, Taken], state: Any) -> tuple[Taken, ...]:
    """The steps from the start to a state."""
    steps: list[Taken] = []
    while state in arrived_by:
        steps.append(arrived_by[state])
        state = steps[-1].outcome.before
    return tuple(reversed(steps))


def counterexample(fault: Fault, instances: Sequence[tuple[int, int]] | None = None) -> Run | None:
    """The shortest run of the first small instance that breaks the invariant the fault is known for."""
    wanted = fault.breaks[0] if fault.breaks else None
    begin = INSTANCES.index(fault.smallest) if fault.smallest in INSTANCES else 0
    chosen = INSTANCES[begin:] if instances is None else instances
    runs = (shortest_run(fault, size, width, wanted) for size, width in chosen)
    return next((run for run in runs if run is not None), None)
