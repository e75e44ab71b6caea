"""Terms as Python: one assignment for each value that is used more than once, the rest in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from kvproof.model.tracing import Term

INFIX = {
    "add": "+",
    "subtract": "-",
    "less": "<",
    "less_or_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "and": "&",
    "or": "|",
}
CALLS = {
    "where": "where({})",
    "ceil_pages": "ceil_pages({}, page_size, page_shift)",
    "floor_pages": "floor_pages({}, page_size, page_shift)",
    "tokens": "({} * page_size)",
}
MAX_WIDTH = 400
"""An expression that is longer gets a name, so that neither a reader nor a parser drowns in it."""


class Printer:
    """Prints terms of one function. `reads` says how a name is read."""

    def __init__(self, reads: Callable[[Term], str]) -> None:
        self.lines: list[str] = []
        self._reads = reads
        self._uses: Counter[int] = Counter()
        self._known: dict[int, str] = {}
        self._names = 0

    def announce(self, values: Iterable[Any]) -> None:
        """Count how often each value is used, before anything is printed: what is used once needs no name."""
        waiting = [v for v in values if isinstance(v, Term)]
        while waiting:
            term = waiting.pop()
            self._uses[id(term)] += 1
            if self._uses[id(term)] == 1:
                waiting += [a for a in term.arguments if isinstance(a, Term)]

    def value(self, value: Any) -> str:
        """The expression of a value; what it needs is assigned before."""
        if not isinstance(value, Term):
            return str(value)
        if value.operator == "constant":
            return str(value.arguments[0])
        if id(value) not in self._known:
            text = self._reads(value) if value.operator == "read" else self._operation(value)
            if value.operator == "read" or self._uses[id(value)] > 1 or len(text) > MAX_WIDTH:
                text = self.named(text)
            self._known[id(value)] = text
        return self._known[id(value)]

    def named(self, text: str) -> str:
        name = f"v{self._names}"
        self._names += 1
        self.lines.append(f"{name} = {text}")
        return name

    def _operation(self, term: Term) -> str:
        arguments = [self.value(a) for a in term.arguments]
        if term.operator == "not":
            return f"(not {arguments[0]})"
        if term.operator in INFIX:
            return "(" + f" {INFIX[term.operator]} ".join(arguments) + ")"
        return CALLS[term.operator].format(", ".join(arguments))
