"""What all functions that are printed from the specification share: how they read a value, set bits, answer a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvproof.conformance.compiled.layout import COLUMNS, FIELDS, SETTINGS
from kvproof.conformance.compiled.source import Printer, function
from kvproof.model.tracing import Term


def reads(term: Term) -> str:
    """How a name is read in the functions that are printed."""
    name = term.arguments[0]
    kind, _, rest = name.partition(".")
    if kind in ("s", "t"):
        text = f"{'old' if kind == 's' else 'new'}[{FIELDS[rest]}]"
        return f"({text} != 0)" if term.is_flag else f"int({text})"
    if kind == "d":
        text = f"settings[{SETTINGS.index(rest)}]"
        return f"({text} != 0)" if term.is_flag else f"int({text})"
    if kind == "c":
        return f"int(counts[{rest}])"
    return f"int(table[{COLUMNS[name]}, event])"


def preamble() -> list[str]:
    """What `ceil_pages` and `floor_pages` need."""
    return [
        f"page_size = int(settings[{SETTINGS.index('page_size')}])",
        f"page_shift = int(settings[{SETTINGS.index('page_shift')}])",
    ]


def taken(printer: Printer) -> list[str]:
    """What was assigned since it was asked last."""
    lines, printer.lines = printer.lines, []
    return lines


def bits_set(printer: Printer, name: str, flags: Iterable[tuple[int, Any]]) -> list[str]:
    """Lines that set a bit of a number for each flag that holds."""
    lines = [f"{name} = 0"]
    for bit, flag in flags:
        text = printer.value(flag)
        if text != "False":
            lines += [*taken(printer), f"{name} |= where({text}, {1 << bit}, 0)"]
    return lines


def predicate(name: str, arguments: str, value: Any, reads: Callable[[Term], str] = reads) -> str:
    """A function that answers one question."""
    printer = Printer(reads)
    printer.announce([value])
    text = printer.value(value)
    return function(name, arguments, [*preamble(), *taken(printer), f"return {text}"])
