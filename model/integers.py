"""The domain of Python integers: the concrete oracle's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Tokens = Any
"""An `int` here. Rules have a type of their own for lengths, which fits any domain's (`spec/domain.py`)."""


@dataclass(frozen=True)
class Integers:
    """Lengths and counts are `int`, flags are `bool`; one configuration. `window` 0 is full attention."""

    page_size: int
    row_width: Tokens
    overlap: bool = False
    speculation: int = 0
    drafts: Tokens = 1
    window: Tokens = 0
    tree: bool = True
    zero: Tokens = 0
    one: Tokens = 1
    true: bool = True
    false: bool = False

    @property
    def spec_v1(self) -> bool:
        return self.speculation == 1

    @property
    def spec_v2(self) -> bool:
        return self.speculation == 2

    @property
    def windowed(self) -> bool:
        return self.window > 0

    def every(self, *flags: bool) -> bool:
        return all(flags)

    def some(self, *flags: bool) -> bool:
        return any(flags)

    def no(self, flag: bool) -> bool:
        return not flag

    def where(self, flag: bool, then: T, otherwise: T) -> T:
        return then if flag else otherwise

    def ceil_pages(self, length: Tokens) -> int:
        return -(-length // self.page_size)

    def floor_pages(self, length: Tokens) -> int:
        return length // self.page_size

    def tokens(self, pages: int) -> Tokens:
        return pages * self.page_size
