"""Any state that keeps the invariants, and a step of one action from it, as terms of Z3: questions about rules begin with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action, Step
from kvproof.spec.effects import Condition
from kvproof.spec.events import take
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import LEDGER, Machine


@dataclass(frozen=True)
class ArbitraryStep:
    """`assumptions`: the invariants before it, and that it can be taken; `conditions`: what is asked of it.

    `step` is what the rule says, `after` its successor with the ghosts brought up to date.
    """

    d: Symbols
    before: Any
    step: Step
    after: Any
    conditions: tuple[Condition, ...]
    assumptions: tuple[Any, ...]


def arbitrary_step(action: Action, machine: Machine = LEDGER) -> ArbitraryStep:
    d, before, assumed = any_state(machine)
    params = d.parameters(action.params)
    step = action.run(d, before, params)
    after, conditions = take(d, action, before, step, params)
    well_formed = (d.is_well_formed(sort, getattr(params, name)) for name, sort in action.params.items())
    taken = (action.applies(d, before), *(guard.holds for guard in step.guards))
    return ArbitraryStep(d, before, step, after, conditions, (*assumed, *well_formed, *taken))


def any_state(machine: Machine = LEDGER) -> tuple[Symbols, Any, tuple[Any, ...]]:
    """A domain, a state, and what is assumed of them: the same terms every time, so they are built once."""
    return _any_state(machine.state, tuple(machine.all_invariants.values()))


@cache
def _any_state(state: type, invariants: tuple[Invariant, ...]) -> tuple[Symbols, Any, tuple[Any, ...]]:
    d = Symbols()
    s = d.arbitrary(state)
    facts = d.domain_facts(s, SimpleNamespace(), {})
    return d, s, (*facts, *(invariant.holds(d, s) for invariant in invariants))
