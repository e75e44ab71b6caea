"""A place that releases keep differently, and how to find out what the installed one has.

A release is not asked for its version but for what it has.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class Way:
    name: str
    is_there: Callable[[], bool]
    value: Any


class Seam:
    def __init__(self, name: str, what: str, *ways: Way, otherwise: str | None = None) -> None:
        """`ways`: newest first. `otherwise`: what the trace lacks where none of them is there; None: without it nothing can be
        driven or recorded."""
        self.name, self.what, self.ways, self.otherwise = name, what, ways, otherwise


def named(place: str) -> Any:
    """What `module:name.name` names; LookupError where a release does not have it."""
    module, _, name = place.partition(":")
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise LookupError(place) from error


def has(place: str) -> Callable[[], bool]:
    def is_there() -> bool:
        try:
            named(place)
        except LookupError:
            return False
        return True

    return is_there


def takes(place: str, parameter: str) -> Callable[[], bool]:
    return lambda: has(place)() and parameter in inspect.signature(named(place)).parameters


def keeps(place: str, field: str) -> Callable[[], bool]:
    """Whether the dataclass at `place` has this field."""
    return lambda: has(place)() and field in getattr(named(place), "__dataclass_fields__", {})


def is_annotated(place: str, field: str, name: str) -> Callable[[], bool]:
    return lambda: has(place)() and name in str(named(place).__annotations__.get(field))


def any_of(*checks: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: any(check() for check in checks)


def is_not(check: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: not check()


def class_at(place: str) -> Way:
    return Way(place.rpartition(":")[0].removeprefix("sglang.srt."), has(place), place)
