"""Terms as LLVM assembly: one instruction for each operation, every value computed once.

A rule is straight-line (`model/tracing.py`), and so is what is printed of it. Printing assembly instead of Python for numba takes
four fifths off the time to compile: numba types and lowers each expression in Python.

Where a name that a term reads stands in memory is known to who writes the function: `conformance/compiled/assembly.py` for
the checker of traces, `model/compiled/steps.py` for the search. Both have the page size in `%page_size`, and its logarithm in
`%page_shift`, which is -1 where it is no power of two.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from kvproof.model.tracing import Term

PRELUDE = """
define internal i64 @floor_pages(i64 %length, i64 %page_size, i64 %page_shift) alwaysinline {
  %is_power = icmp sge i64 %page_shift, 0
  br i1 %is_power, label %shift, label %divide
shift:
  %shifted = ashr i64 %length, %page_shift
  ret i64 %shifted
divide:
  %quotient = sdiv i64 %length, %page_size
  %rest = srem i64 %length, %page_size
  %is_below = icmp slt i64 %rest, 0
  %less = sext i1 %is_below to i64
  %floor = add i64 %quotient, %less
  ret i64 %floor
}

define internal i64 @ceil_pages(i64 %length, i64 %page_size, i64 %page_shift) alwaysinline {
  %negative = sub i64 0, %length
  %floor = call i64 @floor_pages(i64 %negative, i64 %page_size, i64 %page_shift)
  %ceil = sub i64 0, %floor
  ret i64 %ceil
}
"""
OF_NUMBERS = {
    "add": "add i64 {}, {}",
    "subtract": "sub i64 {}, {}",
    "less": "icmp slt i64 {}, {}",
    "less_or_equal": "icmp sle i64 {}, {}",
    "equal": "icmp eq i64 {}, {}",
    "not_equal": "icmp ne i64 {}, {}",
    "floor_pages": "call i64 @floor_pages(i64 {}, i64 %page_size, i64 %page_shift)",
    "ceil_pages": "call i64 @ceil_pages(i64 {}, i64 %page_size, i64 %page_shift)",
    "tokens": "mul i64 {}, %page_size",
}
"""Operations on numbers: a flag among their arguments counts as 0 or 1."""


def page_shift(page_size: int) -> int:
    """The logarithm of a power of two, else -1."""
    return page_size.bit_length() - 1 if page_size & (page_size - 1) == 0 else -1


class Assembly(ABC):
    """One function while it is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[int, str] = {}
        self._names = 0

    @abstractmethod
    def read(self, term: Term) -> str:
        """The operand of a term that reads a name."""

    def put(self, instruction: str, name: str = "") -> str:
        """Write an instruction that has a value; the name of the value."""
        if not name:
            self._names += 1
            name = f"%v{self._names}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def value(self, value: Any) -> str:
        """The operand of a term or of a number; what it needs is written before."""
        if not isinstance(value, Term):
            return str(value).lower() if isinstance(value, bool) else str(value)
        if value.operator == "constant":
            return self.value(value.arguments[0])
        waiting = [value]  # and no recursion: a rule may come from a file, with a sum of thousands of parts
        while waiting:
            term = waiting[-1]
            missing = [part for part in term.arguments if isinstance(part, Term) and not self._is_known(part)]
            if missing:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if not self._is_known(term):
                self._known[id(term)] = self.read(term) if term.operator == "read" else self._operation(term)
        return self._known[id(value)]

    def _is_known(self, term: Term) -> bool:
        return term.operator == "constant" or id(term) in self._known

    def number(self, value: Any) -> str:
        """The operand as an integer: flags as 0 and 1."""
        text = self.value(value)
        is_flag = value.is_flag if isinstance(value, Term) else isinstance(value, bool)
        return self.put(f"zext i1 {text} to i64") if is_flag else text

    def bits(self, flags: Iterable[tuple[int, Any]]) -> str:
        """A number with a bit for each flag that holds."""
        return self.union((1 << bit, flag) for bit, flag in flags)

    def union(self, masks: Iterable[tuple[int, Any]]) -> str:
        """A number with the bits of each mask whose flag holds."""
        total = "0"
        for mask, flag in masks:
            chosen = self.put(f"select i1 {self.value(flag)}, i64 {mask}, i64 0")
            total = self.put(f"or i64 {total}, {chosen}")
        return total

    def folded(self, operator: str, flags: Iterable[str]) -> str:
        """One flag of many operands: `and` or `or` of them."""
        return functools.reduce(lambda one, other: self.put(f"{operator} i1 {one}, {other}"), flags)

    def _operation(self, term: Term) -> str:
        operator, arguments = term.operator, term.arguments
        if operator == "not":
            return self.put(f"xor i1 {self.value(arguments[0])}, true")
        if operator == "where":
            kind, of = ("i1", self.value) if term.is_flag else ("i64", self.number)
            condition, then, otherwise = self.value(arguments[0]), of(arguments[1]), of(arguments[2])
            return self.put(f"select i1 {condition}, {kind} {then}, {kind} {otherwise}")
        if operator in ("and", "or"):
            return self.folded(operator, map(self.value, arguments))
        return self.put(OF_NUMBERS[operator].format(*map(self.number, arguments)))
