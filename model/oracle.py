"""The concrete oracle: one step of the specification in Python integers, with everything that is wrong about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvproof.model.integers import Integers
from kvproof.spec.actions import ACTIONS, Action, Guard, Step
from kvproof.spec.effects import Applied, Condition, Effect, apply_effects
from kvproof.spec.events import take
from kvproof.spec.invariants import INVARIANTS, Invariant
from kvproof.spec.state import Ledger

Value = int | bool


@dataclass(frozen=True)
class Outcome:
    """A step taken: the successor, its effects, and what was violated (empty when all is well)."""

    action: Action
    before: Any
    after: Any
    effects: tuple[Effect, ...]
    failed_guards: tuple[Guard, ...]
    failed_conditions: tuple[Condition, ...]

    def broken(self, d: Integers, invariants: Mapping[str, Invariant] = INVARIANTS) -> dict[str, str]:
        """Invariants that this step breaks (it held before, or a side condition failed), each with the sentence."""
        found = {c.invariant: c.sentence for c in self.failed_conditions}
        for invariant in invariants.values():
            if invariant.id not in found and not invariant.holds(d, self.after) and invariant.holds(d, self.before):
                found[invariant.id] = invariant.statement
        return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


@dataclass(frozen=True)
class Oracle:
    """Runs actions in one configuration; `actions` may hold deviating ones."""

    d: Integers
    actions: Mapping[str, Action]

    @staticmethod
    def of(page_size: int, row_width: int, actions: Mapping[str, Action] = ACTIONS, **config: Any) -> Oracle:
        """An oracle for one page size and row width; `config`: further fields of `Integers`."""
        return Oracle(Integers(page_size, row_width, **config), actions)

    def applicable(self, event: str, s: Ledger, of_another: bool = False) -> Action | None:
        """The rule that an event is judged by in this state; None where the protocol has no such event now."""
        rules = (a for a in self.actions.values() if a.event == event and a.of_another == of_another)
        return next((a for a in rules if a.applies(self.d, s)), None)

    def step(self, action: Action, s: Any, params: Mapping[str, Value]) -> Outcome:
        step = action.run(self.d, s, SimpleNamespace(**params))
        return _outcome(action, s, step, apply_effects(self.d, step.after, step.effects))

    def asked_step(self, action: Action, s: Any, params: Mapping[str, Value]) -> Outcome:
        """The step, and of a ledger's also what is asked of its event (`spec/events.py`), as in the proof."""
        given = SimpleNamespace(**params)
        return self._asked(action, s, action.run(self.d, s, given), given)

    def allowed_step(self, action: Action, s: Any, params: Mapping[str, Value]) -> Outcome | None:
        """That, or None where a guard fails: a search asks most of these, and leaves out the work of their effects."""
        given = SimpleNamespace(**params)
        step = action.run(self.d, s, given)
        return self._asked(action, s, step, given) if all(g.holds for g in step.guards) else None

    def _asked(self, action: Action, s: Any, step: Step, given: SimpleNamespace) -> Outcome:
        return _outcome(action, s, step, take(self.d, action, s, step, given))


def _outcome(action: Action, s: Any, step: Step, applied: Applied) -> Outcome:
    after, conditions = applied
    return Outcome(
        action,
        s,
        after,
        step.effects,
        tuple(g for g in step.guards if not g.holds),
        tuple(c for c in conditions if not c.holds),
    )
