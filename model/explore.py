"""Bounded search: all reachable states of a small instance, breadth first, over the same rules that are proven.

Gives what induction cannot: the shortest run that breaks an invariant, whether each action can ever happen, whether every
turn can still end, and the number of reachable states, which tests pin.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import LEDGER, Machine
from kvproof.spec.state import NONE, Ledger

# Small instances (page size, row width), in the order in which a counterexample is looked for.
INSTANCES: tuple[tuple[int, int], ...] = ((1, 3), (1, 4), (1, 6), (2, 4), (2, 5), (2, 6), (3, 6))
MOST_STEPS = 16
COUNTS = range(4)
WALK_STEPS = 4
MOST_STATES = 100_000
"""Of one instance. The right rules have less than a tenth of it where a proof explores; wrong ones may have no end."""


class TooManyStatesError(Exception):
    """An instance has more than `MOST_STATES` states, so it was not explored whole."""


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


USUAL_FIRST = {"inserted": (True, False)}
"""Flags that an implementation sets unless something special was asked for."""


def parameters(action: Action, row_width: int) -> Iterator[dict[str, Value]]:
    """All parameters of the small instance: lengths up to the row width. What is usual comes first."""
    choices: dict[str, Any] = {"length": range(row_width + 1), "count": COUNTS, "flag": (False, True)}
    names = list(action.params)
    for values in itertools.product(*(USUAL_FIRST.get(n, choices[action.params[n]]) for n in names)):
        yield dict(zip(names, values, strict=True))


def successors(oracle: Oracle, s: Any) -> Iterator[Taken]:
    """Every enabled step from a state."""
    for action in oracle.actions.values():
        if not action.applies(oracle.d, s):
            continue
        for params in parameters(action, oracle.d.row_width):
            if _fits(params, oracle.d):
                outcome = oracle.allowed_step(action, s, params)
                if outcome is not None:
                    yield Taken(params, outcome)


def _fits(params: dict[str, Value], d: Integers) -> bool:
    """A request never has more input than a row holds; the scheduler refuses it before any action."""
    return int(params.get("origin_len", 1)) <= d.row_width


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
            yield step, is_new
            if is_new:
                _add(seen, step.outcome.after)
                reached.append(step.outcome.after)
        frontier = reached
        depth = None if depth is None else depth - 1


def _add(seen: set[Any], state: Any) -> None:
    if len(seen) == MOST_STATES:
        raise TooManyStatesError(f"more than {MOST_STATES:,} states")
    seen.add(state)


def states(oracle: Oracle, machine: Machine = LEDGER, depth: int | None = None) -> Iterator[Any]:
    """The reachable states of a machine, breadth first, each once."""
    yield machine.start(oracle.d)
    yield from (step.outcome.after for step, is_new in breadth_first(oracle, machine, depth) if is_new)


def reach(
    page_size: int,
    row_width: int,
    actions: Mapping[str, Action] = ACTIONS,
    visit: Callable[[Integers, Ledger], None] = lambda d, s: None,
    **config: Any,
) -> Reachable:
    """All reachable ledgers of rules without a fault; raises AssertionError if one breaks an invariant.

    `visit` is called with each of them once.
    """
    oracle = Oracle.of(page_size, row_width, actions, **config)
    start = LEDGER.start(oracle.d)
    sources: dict[Any, list[Any]] = {start: []}
    depths = {start: 0}
    taken = dict.fromkeys(oracle.actions, 0)
    for step, is_new in breadth_first(oracle, LEDGER):
        before, after = step.outcome.before, step.outcome.after
        taken[step.outcome.action.name] += 1
        # A state that was met before keeps the invariants; what can still fail is this way of getting there.
        broken = step.outcome.broken(oracle.d, INVARIANTS if is_new else {})
        assert not broken, (step, broken)
        if is_new:
            sources[after], depths[after] = [], depths[before] + 1
        sources[after].append(before)
    for state in sources:
        visit(oracle.d, state)
    turn_ends = _can_reach(sources, lambda state: state.phase == NONE)
    session_ends = _can_reach(sources, lambda state: not state.is_open)
    stuck = len(sources) - len(turn_ends & session_ends)
    return Reachable(page_size, row_width, config, len(sources), max(depths.values()), taken, stuck)


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


def not_taken(
    page_size: int, row_width: int, actions: Mapping[str, Action], wanted: Iterable[str], **config: Any
) -> list[str]:
    """Those of the wanted actions that no run of the instance takes. Raises TooManyStatesError.

    The search goes deep first, because it ends when all were taken.
    """
    oracle = Oracle.of(page_size, row_width, actions, **config)
    waiting = [LEDGER.start(oracle.d)]
    seen, left = set(waiting), dict.fromkeys(wanted)
    while waiting and left:
        for step in successors(oracle, waiting.pop()):
            left.pop(step.outcome.action.name, None)
            if step.outcome.after not in seen:
                _add(seen, step.outcome.after)
                waiting.append(step.outcome.after)
    return list(left)


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

    Bounded to `MOST_STEPS` and `MOST_STATES`, because a machine with counters has no end of states.
    """
    oracle = Oracle.of(page_size, row_width, actions, **config)

    def is_wanted(step: Taken) -> bool:
        broken = step.outcome.broken(oracle.d, machine.invariants)
        return bool(broken) and (invariant is None or invariant in broken)

    steps = first_steps(oracle, machine, is_wanted)
    if steps is None:
        return None
    return Run(page_size, row_width, steps, steps[-1].outcome.broken(oracle.d, machine.invariants), config)


def first_steps(oracle: Oracle, machine: Machine, is_wanted: Callable[[Taken], bool]) -> tuple[Taken, ...] | None:
    """The shortest run to a wanted step; None where no run of at most `MOST_STEPS`, among the first `MOST_STATES`, has one."""
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
