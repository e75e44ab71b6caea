"""Small changes of a built-in step, for variants. Each file of a variant carries a copy of these functions."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.domain import Domain, Flag, Length
from kvproof.spec.effects import Effect
from kvproof.spec.state import Ledger


def built_in(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The step of the built-in rule."""
    return ACTIONS[action].run(d, s, p)


def with_fields(step: Step, **fields: Any) -> Step:
    """The same step to a state with other fields."""
    return dataclasses.replace(step, after=step.after.but(**fields))


def without(step: Step, *kinds: type) -> Step:
    """The same step without its effects of these kinds."""
    return dataclasses.replace(step, effects=tuple(e for e in step.effects if not isinstance(e, kinds)))


def with_effects(step: Step, *effects: Effect) -> Step:
    """The same step with more effects, behind its own."""
    return dataclasses.replace(step, effects=(*step.effects, *effects))


def without_guard(step: Step, words: str) -> Step:
    """The same step without the guard whose sentence has these words. Raises ValueError if there is none."""
    kept = tuple(guard for guard in step.guards if words not in guard.sentence)
    if len(kept) == len(step.guards):
        raise ValueError(f"no guard says {words!r}")
    return dataclasses.replace(step, guards=kept)


def with_guard(step: Step, sentence: str, holds: Flag) -> Step:
    """The same step, allowed only where this holds, too."""
    return dataclasses.replace(step, guards=(*step.guards, Guard(sentence, holds)))


def sixteen_pages(d: Domain) -> Length:
    """Beyond the rows of every small instance."""
    return d.tokens(d.floor_pages(d.zero) + 16)
