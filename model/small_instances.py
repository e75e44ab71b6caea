"""The small instances that are explored whole, and what is tried in one: all values of parameters, in one order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvproof.model.oracle import Value
from kvproof.spec.actions import Action


def said(config: Mapping[str, Any]) -> str:
    """A configuration in words: overlap, window 1."""
    words = (
        name if value is True else f"no {name}" if value is False else f"{name} {value}"
        for name, value in config.items()
    )
    return ", ".join(words) or "plain"


@dataclass(frozen=True)
class Instance:
    """A page size, a row width and a configuration."""

    page_size: int
    row_width: int
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> str:
        return f"P={self.page_size} row width {self.row_width}"

    def __str__(self) -> str:
        return f"{self.size}, {said(self.config)}"


Instances = tuple[Instance, ...]
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"overlap": True},
    {"speculation": 1},
    {"overlap": True, "speculation": 2},
    {"window": 1},
    {"tree": False},
    {"overlap": True, "window": 1},
)
EVERY_CONFIG: tuple[dict[str, Any], ...] = tuple(
    {**mode, **window, **tree}
    for mode in (
        {},
        {"overlap": True},
        {"speculation": 1, "drafts": 3},
        {"overlap": True, "speculation": 2, "drafts": 3},
    )
    for window in ({}, {"window": 2})
    for tree in ({}, {"tree": False})
)
"""Each kind of step with each kind of cache."""
SMALL: Instances = (*(Instance(1, 3, config) for config in CONFIGS), Instance(2, 4))
"""The shortest rows that hold two turns, in each kind of configuration, and the smallest with positions inside a page."""
MIDDLE: Instances = tuple(Instance(*size, config) for size in ((2, 3), (3, 4), (4, 5)) for config in CONFIGS)
"""Where an action happens that happens with larger pages, too."""
LARGE: tuple[Instances, ...] = tuple(
    tuple(Instance(*size, config) for config in EVERY_CONFIG) for size in ((1, 5), (2, 6), (3, 9), (4, 12))
)
"""For each page size the longest rows of which all configurations together have some million states at most."""


# --- what is tried in one -------------------------------------------------------------------------------------------

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
