"""What is tried in small instances: values of parameters, all of them, in one order for each search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kvproof.model.oracle import Value
from kvproof.spec.actions import Action

USUAL_FIRST = {"inserted": range(1, -1, -1)}
"""Flags that an implementation sets unless something special was asked for."""
OF_SORT = {"count": range(4), "flag": range(2)}


def values_of(name: str, sort: str) -> range | None:
    """What is tried for a parameter, in order; None: all lengths up to the row width."""
    return USUAL_FIRST.get(name, OF_SORT.get(sort))


def parameters(action: Action, row_width: int) -> Iterator[dict[str, Value]]:
    """All parameters of the small instance. What is usual comes first."""
    choices = []
    for name, sort in action.params.items():
        values = values_of(name, sort) or range(row_width + 1)
        choices.append([bool(value) for value in values] if sort == "flag" else values)
    for chosen in itertools.product(*choices):
        yield dict(zip(action.params, chosen, strict=True))
