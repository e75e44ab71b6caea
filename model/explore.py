"""Bounded search: all reachable states of a small instance, breadth first, over the same rules that are proven.

Gives what induction cannot: the shortest run that breaks an invariant, whether each action can ever happen, and the number
of reachable states, which tests pin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.state import Ledger, pristine

# Small instances, in the order in which a counterexample is looked for: the smallest page size, then the shortest row.
INSTANCES: tuple[tuple[int, int], ...] = ((1, 3), (1, 4), (2, 4), (2, 5), (2, 6), (3, 6), (4, 8))


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


@dataclass(frozen=True)
class Reachable:
    """What a whole small instance holds."""

    page_size: int
    row_width: int
    states: int
    depth: int
    taken: dict[str, int]


def parameters(action: Action, row_width: int) -> Iterator[dict[str, Value]]:
    """All parameters of the small instance: lengths up to the row width."""
    choices = {"length": range(row_width + 1), "flag": (False, True)}
    names = list(action.params)
    for values in itertools.product(*(choices[action.params[n]] for n in names)):
        yield dict(zip(names, values, strict=True))


def successors(oracle: Oracle, s: Ledger) -> Iterator[Taken]:
    """Every enabled step from a state."""
    for action in oracle.actions.values():
        if not action.applies(oracle.d, s):
            continue
        for params in parameters(action, oracle.d.row_width):
            if _fits(params, oracle.d):
                outcome = oracle.step(action, s, params)
                if not outcome.failed_guards:
                    yield Taken(params, outcome)


def _fits(params: dict[str, Value], d: Integers) -> bool:
    """A request never has more input than a row holds; the scheduler refuses it before any action."""
    return int(params.get("origin_len", 1)) <= d.row_width


def reach(page_size: int, row_width: int, actions: Mapping[str, Action] = ACTIONS) -> Reachable:
    """All reachable states of rules without a fault; raises AssertionError if one breaks an invariant."""
    oracle = Oracle.of(page_size, row_width, actions)
    start = pristine(oracle.d)
    seen, frontier, depth = {start}, [start], 0
    taken = dict.fromkeys(oracle.actions, 0)
    while frontier:
        reached = []
        for state in frontier:
            for step in successors(oracle, state):
                taken[step.outcome.action.name] += 1
                broken = step.outcome.broken(oracle.d)
                assert not broken, (step, broken)
                if step.outcome.after not in seen:
                    seen.add(step.outcome.after)
                    reached.append(step.outcome.after)
        frontier = reached
        depth += bool(reached)
    return Reachable(page_size, row_width, len(seen), depth, taken)


def shortest_run(fault: Fault, page_size: int, row_width: int, invariant: str | None = None) -> Run | None:
    """The shortest run that breaks `invariant` (or any) with the fault on; None when the instance has none."""
    return shortest_run_of(actions_with(fault), page_size, row_width, invariant)


def shortest_run_of(
    actions: Mapping[str, Action], page_size: int, row_width: int, invariant: str | None = None
) -> Run | None:
    """The shortest run of these rules that breaks `invariant` (or any); None when the instance has none.

    Runs end where they break something: what follows a first violation proves nothing about the second.
    """
    oracle = Oracle.of(page_size, row_width, actions)
    start = pristine(oracle.d)
    parents: dict[Ledger, tuple[Ledger, Taken] | None] = {start: None}
    frontier = [start]
    while frontier:
        reached = []
        for state in frontier:
            for step in successors(oracle, state):
                broken = step.outcome.broken(oracle.d)
                if broken and (invariant is None or invariant in broken):
                    return Run(page_size, row_width, (*_path(parents, state), step), broken)
                if not broken and step.outcome.after not in parents:
                    parents[step.outcome.after] = (state, step)
                    reached.append(step.outcome.after)
        frontier = reached
    return None


def _path(parents: dict[Ledger, tuple[Ledger, Taken] | None], state: Ledger) -> tuple[Taken, ...]:
    steps: list[Taken] = []
    while (link := parents[state]) is not None:
        state, step = link
        steps.append(step)
    return tuple(reversed(steps))


def counterexample(fault: Fault) -> Run | None:
    """The shortest run of the first small instance that breaks the invariant the fault is known for."""
    wanted = fault.breaks[0] if fault.breaks else None
    return next((run for size, width in INSTANCES if (run := shortest_run(fault, size, width, wanted))), None)
