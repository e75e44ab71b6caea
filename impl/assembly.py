"""Puts the faults that are on in front of the classes that they deviate from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

Part = TypeVar("Part")


class Parts:
    """The class to use for each part of the engine: the right one, with every deviation of it mixed in front."""

    def __init__(self, deviations: Sequence[type]) -> None:
        self._deviations = deviations

    def of(self, part: type[Part]) -> type[Part]:
        mixed = tuple(deviation for deviation in self._deviations if part in deviation.__bases__)
        return cast("type[Part]", type(part.__name__, mixed, {})) if mixed else part
