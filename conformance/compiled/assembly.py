"""Terms as the functions of the checker: where each name stands in memory.

All functions have the same arguments, so that one call serves them all: a number that each reads in its own way, the ledger
before and after the event, the event's column of the table and the bytes from one row of that to the next, the settings, the
counts of the whole replay, and the two arrays for what is answered (`layout.py` says what stands where in each).
"""

from __future__ import annotations

from typing import Any

from kvproof.conformance.compiled import layout
from kvproof.model.compiled import assembly
from kvproof.model.tracing import Term

PARAMETERS = (
    "i64 %number, ptr %old, ptr %new, ptr %event, i64 %stride, ptr %settings, ptr %counts, ptr %answer, ptr %moves"
)
ARRAYS = {"s": ("old", layout.FIELDS), "t": ("new", layout.FIELDS), "d": ("settings", layout.SETTINGS_AT)}
"""Where a name with this prefix is read: the array, and the places of names in it."""


class Assembly(assembly.Assembly):
    """One function while it is written."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("page_size", "page_shift"):
            self.put(f"load i64, ptr {self.place('settings', layout.SETTINGS_AT[name])}", f"%{name}")

    def place(self, array: str, at: int | str) -> str:
        """The address of a place in an array of 64-bit numbers."""
        return self.put(f"getelementptr i64, ptr %{array}, i64 {at}")

    def store(self, value: Any, array: str, at: int | str) -> None:
        self.store_text(self.number(value), array, at)

    def store_text(self, operand: str, array: str, at: int | str) -> None:
        self.lines.append(f"store i64 {operand}, ptr {self.place(array, at)}")

    def call(self, name: str, kind: str, **others: str) -> str:
        """Call another of these functions with the same arguments, but for `others`."""
        arguments = PARAMETERS
        for parameter, operand in others.items():
            arguments = arguments.replace(f"%{parameter},", f"{operand},")
        return self.put(f"call {kind} @{name}({arguments})")

    def function(self, name: str, kind: str, result: str, linkage: str = "internal ") -> str:
        """The whole function, which returns `result`."""
        body = "\n".join(f"  {line}" for line in (*self.lines, f"ret {kind} {result}"))
        return f"define {linkage}{kind} @{name}({PARAMETERS}) {{\n{body}\n}}\n"

    def read(self, term: Term) -> str:
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
