"""Terms as LLVM assembly: one instruction for each operation, every value computed once.

A rule is straight-line (`model/tracing.py`), and so is each function here, but for the dispatch of `rules.py`. Printing assembly
instead of Python for numba takes four fifths off the time to compile: numba types and lowers each expression in Python.

All functions have the same arguments, so that one call serves them all: a number that each reads in its own way, the ledger
before and after the event, the event's column of the table and the bytes from one row of that to the next, the settings, the
counts of the whole replay, and the two arrays for what is answered (`layout.py` says what stands where in each).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from kvproof.conformance.compiled import layout
from kvproof.model.tracing import Term

PARAMETERS = (
    "i64 %number, ptr %old, ptr %new, ptr %event, i64 %stride, ptr %settings, ptr %counts, ptr %answer, ptr %moves"
)
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
ARRAYS = {"s": ("old", layout.FIELDS), "t": ("new", layout.FIELDS), "d": ("settings", layout.SETTINGS_AT)}
"""Where a name with this prefix is read: the array, and the places of names in it."""


class Assembly:
    """One function while it is written."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._known: dict[int, str] = {}
        self._names = 0
        for name in ("page_size", "page_shift"):
            self.put(f"load i64, ptr {self.place('settings', layout.SETTINGS_AT[name])}", f"%{name}")

    def put(self, instruction: str, name: str = "") -> str:
        """Write an instruction that has a value; the name of the value."""
        if not name:
            self._names += 1
            name = f"%v{self._names}"
        self._lines.append(f"{name} = {instruction}")
        return name

    def place(self, array: str, at: int | str) -> str:
        """The address of a place in an array of 64-bit numbers."""
        return self.put(f"getelementptr i64, ptr %{array}, i64 {at}")

    def store(self, value: Any, array: str, at: int | str) -> None:
        self.store_text(self.number(value), array, at)

    def store_text(self, operand: str, array: str, at: int | str) -> None:
        self._lines.append(f"store i64 {operand}, ptr {self.place(array, at)}")

    def call(self, name: str, kind: str, **others: str) -> str:
        """Call another of these functions with the same arguments, but for `others`."""
        arguments = PARAMETERS
        for parameter, operand in others.items():
            arguments = arguments.replace(f"%{parameter},", f"{operand},")
        return self.put(f"call {kind} @{name}({arguments})")

    def value(self, value: Any) -> str:
        """The operand of a term or of a number; what it needs is written before."""
        if not isinstance(value, Term):
            return str(value).lower() if isinstance(value, bool) else str(value)
        if value.operator == "constant":
            return self.value(value.arguments[0])
        if id(value) not in self._known:
            self._known[id(value)] = self._read(value) if value.operator == "read" else self._operation(value)
        return self._known[id(value)]

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

    def function(self, name: str, kind: str, result: str, linkage: str = "internal ") -> str:
        """The whole function, which returns `result`."""
        body = "\n".join(f"  {line}" for line in (*self._lines, f"ret {kind} {result}"))
        return f"define {linkage}{kind} @{name}({PARAMETERS}) {{\n{body}\n}}\n"

    def _read(self, term: Term) -> str:
        name = term.arguments[0]
        prefix, _, rest = name.partition(".")
        if name == "number":
            return "%number"
        if prefix in ARRAYS:
            array, places = ARRAYS[prefix]
            text = self.put(f"load i64, ptr {self.place(array, places[rest])}")
        elif prefix == "c":
            text = self.put(f"load i64, ptr {self.place('counts', getattr(layout, rest))}")
        else:
            row = self.put(f"mul i64 %stride, {layout.COLUMNS[name]}")
            at = self.put(f"getelementptr i8, ptr %event, i64 {row}")
            text = self.put(f"sext i32 {self.put(f'load i32, ptr {at}')} to i64")
        return self.put(f"icmp ne i64 {text}, 0") if term.is_flag else text

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
