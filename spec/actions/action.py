"""What an action is: when it applies, what it takes, and the step it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Effect

# The state of whatever machine the action belongs to (`spec/machine.py`); most are actions on a `Ledger`.
State = Any


@dataclass(frozen=True)
class Guard:
    """A condition without which the step must not be taken, as a sentence."""

    sentence: str
    holds: Flag


@dataclass(frozen=True)
class Step:
    """The outcome of an action: its guards, the successor (ghosts not yet updated) and its effects in order."""

    after: State
    guards: tuple[Guard, ...] = ()
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True)
class Action:
    """One rule of the protocol.

    `applies` chooses, by the state alone, which rule an event is judged by; `run` gives the step for parameters, whose
    names and sorts (length, count, flag) are in `params`. A step is enabled when the action applies and its guards hold.
    """

    name: str
    event: str
    summary: str
    applies: Callable[[Domain, State], Flag]
    run: Callable[[Domain, State, SimpleNamespace], Step]
    params: dict[str, str] = field(default_factory=dict)
    source: str = ""
    of_another: bool = False
    """It judges events of turns that their session refused, or that are over; every other action judges all but those."""
