"""Why a path ends other than by a return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of the code under proof. `path` is relative to the root of its source tree."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class NotUnderstoodError(Exception):
    """The code does something that the interpreter has no meaning for. Such a path is never a pass.

    `expression` is the source text. The code under proof cannot catch it.
    """

    def __init__(self, reason: str, place: Place | None = None, expression: str = "") -> None:
        super().__init__(reason)
        self.reason, self.place, self.expression = reason, place, expression


class RaisedError(Exception):
    """The code under proof raises an exception of the class `name`. Its own handlers may catch it."""

    def __init__(self, name: str, place: Place | None = None, value: object = None) -> None:
        super().__init__(name)
        self.name, self.place, self.value = name, place, value


class InfeasibleError(Exception):
    """The assumptions and the choices of this path contradict each other: no state takes it."""
