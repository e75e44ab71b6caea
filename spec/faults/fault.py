"""What a fault is: one rule that deviates, the real bug it was, and what breaks with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvproof.spec.actions import ACTIONS, Action, Run, Step
from kvproof.spec.actions.action import summary_of
from kvproof.spec.machine import LEDGER, Machine, machine_of

KINDS = {
    "fault": "bug that was fixed",
    "release": "seen in a release by replaying it",
    "mutation": "no real bug: keeps an invariant from being vacuous",
}
KIND_OF_ID = {"F": "fault", "S": "release", "M": "mutation"}
"""An id is a letter and the pull request that fixed the bug (F), the release (S) or the invariant (M)."""


@dataclass(frozen=True)
class Fault:
    id: str
    action: str
    summary: str
    needs: str
    source: str
    breaks: tuple[str, ...]
    """Pinned: the prover computes it and a test compares. A counterexample is looked for that breaks the first one."""
    run: Run
    also: Mapping[str, Run] = field(default_factory=dict)
    """Other actions that deviate with it: a rule that was moved from one step to another."""
    on_ledgers: Mapping[str, Run] = field(default_factory=dict)
    """For a fault of a small machine: rules of ledgers that a trace shows it by."""
    config: Mapping[str, int | bool] = field(default_factory=dict)
    """The configuration in which it shows (fields of the integer domain); elsewhere the rules are right."""
    smallest: tuple[int, int] = (1, 3)
    """Page size and row width of the first small instance that shows it; a slow test searches the smaller ones."""

    @property
    def kind(self) -> str:
        return KIND_OF_ID[self.id[0]]

    @property
    def machine(self) -> Machine:
        return machine_of(self.action)

    def deviate(self, action: str | None = None) -> Action:
        """The action (its main one, or another) with the faulty rule in place of the right one."""
        name = action or self.action
        run = self.run if name == self.action else self.also[name]
        return dataclasses.replace(self.machine.actions[name], run=run)

    @property
    def deviations(self) -> dict[str, Action]:
        return {name: self.deviate(name) for name in (self.action, *self.also)}

    @property
    def in_traces(self) -> dict[str, Action]:
        """The deviating rules of ledgers, which are what events are judged by."""
        shown = {name: dataclasses.replace(ACTIONS[name], run=run) for name, run in self.on_ledgers.items()}
        return self.deviations if self.machine is LEDGER else shown


FAULTS: dict[str, Fault] = {}
"""All faults by id, in the order of the chapters."""


def fault(
    id: str, *, of: str, breaks: tuple[str, ...], needs: str = "", source: str = "", **more: Any
) -> Callable[[Run], Fault]:
    """A decorator. The function is the faulty rule in place of action `of`, the first line of its docstring the summary.

    `more`: `also`, `on_ledgers`, `config`, `smallest` of the `Fault`.
    """

    def add(rule: Run) -> Fault:
        FAULTS[id] = Fault(id, of, summary_of(rule), needs, source, breaks, rule, **more)
        return FAULTS[id]

    return add


def but_after(step: Step, **fields: Any) -> Step:
    """The step with some fields of its successor changed."""
    return dataclasses.replace(step, after=step.after.but(**fields))


def without(step: Step, effect: type) -> Step:
    """The step without its effects of one class."""
    return dataclasses.replace(step, effects=tuple(e for e in step.effects if not isinstance(e, effect)))


def with_parts(step: Step, effect: type, **parts: Any) -> Step:
    """The step with other parts of its effects of one class."""
    effects = (dataclasses.replace(e, **parts) if isinstance(e, effect) else e for e in step.effects)
    return dataclasses.replace(step, effects=tuple(effects))


def in_order(step: Step, *kinds: type) -> Step:
    """The step with its effects of these classes last, in this order."""
    moved = sorted((e for e in step.effects if isinstance(e, kinds)), key=lambda e: kinds.index(type(e)))
    return dataclasses.replace(step, effects=(*(e for e in step.effects if not isinstance(e, kinds)), *moved))


def actions_with(fault: Fault | None, machine: Machine = LEDGER) -> dict[str, Action]:
    """The machine's table of actions, those of the fault deviating."""
    if fault is None:
        return dict(machine.actions)
    deviating = fault.in_traces if machine is LEDGER else fault.deviations if machine is fault.machine else {}
    return {**machine.actions, **deviating}
