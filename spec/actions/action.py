"""What an action is: when it applies, what it takes, and the step it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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


Run = Callable[[Domain, Any, SimpleNamespace], Step]


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
    run: Run
    params: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    of_another: bool = False
    """It judges events of turns that their session refused, or that are over; every other action judges all but those."""


class ActionTable(dict[str, Action]):
    """Actions by name, in the order in which they are written. `action` writes the row of a rule above the rule itself."""

    def action(
        self,
        event: str = "",
        *,
        when: Callable[[Domain, Any], Flag],
        takes: Mapping[str, str] | None = None,
        source: str = "",
        of_another: bool = False,
    ) -> Callable[[Run], Action]:
        """A decorator. The function is the rule, its name the action's, the first line of its docstring the summary.

        `event` of a trace is judged by it, `when` this holds of the state; it `takes` these parameters (name: sort).
        """

        def add(rule: Run) -> Action:
            name = rule.__name__
            self[name] = Action(name, event, summary_of(rule), when, rule, dict(takes or {}), source, of_another)
            return self[name]

        return add


def summary_of(rule: Callable[..., Any]) -> str:
    """The first line of the docstring as a clause: "The slot stays." is "the slot stays". Ids and symbols stay as they are."""
    line = (inspect.getdoc(rule) or "").partition("\n")[0].removesuffix(".")
    is_word = line[1:2].islower() or line.startswith("A ")
    return line[:1].lower() + line[1:] if is_word else line
