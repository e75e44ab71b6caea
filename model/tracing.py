"""The domain of terms: a rule is run once, on names instead of numbers, and what it computes is written down.

A rule is straight-line over its domain (`spec/domain.py`): all choices are `d.where`. So one run of it on terms is the whole
rule, and the terms can be printed as the source of a function that computes the same (`model/compiled/`). Equal terms
are one object, so what a rule computes twice is computed once.

Code around the rules (what a replay reads off an event) does branch on values. `every_path` runs such code once for each way
through it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FLAG_OPERATORS = frozenset({"less", "less_or_equal", "equal", "not_equal", "and", "or", "not"})


class Term:
    """One value that a rule reads or computes. `operator` is `constant`, `read` or an operation on `arguments`."""

    __slots__ = ("arguments", "domain", "is_flag", "operator")

    def __init__(self, domain: Tracing, operator: str, arguments: tuple[Any, ...], is_flag: bool) -> None:
        self.domain, self.operator, self.arguments, self.is_flag = domain, operator, arguments, is_flag

    # One object per term (`Tracing.term`), so identity is equality; `==` is taken by the rules.
    __hash__ = object.__hash__

    @property
    def constant(self) -> int | bool | None:
        """The value, where it is known already."""
        return self.arguments[0] if self.operator == "constant" else None

    def __add__(self, other: Any) -> Any:
        return self.domain.operation("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.domain.operation("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.domain.operation("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.domain.operation("subtract", other, self)

    def __lt__(self, other: Any) -> Any:
        return self.domain.operation("less", self, other)

    def __le__(self, other: Any) -> Any:
        return self.domain.operation("less_or_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return self.domain.operation("less", other, self)

    def __ge__(self, other: Any) -> Any:
        return self.domain.operation("less_or_equal", other, self)

    def __eq__(self, other: Any) -> Any:
        return self.domain.operation("equal", self, other)

    def __ne__(self, other: Any) -> Any:
        return self.domain.operation("not_equal", self, other)

    def __bool__(self) -> bool:
        return self.domain.decide(self)

    def __repr__(self) -> str:
        return f"{self.operator}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True)
class Path(Generic[T]):
    """One way through code that branches: what it decided, in order, and its `result`."""

    decisions: tuple[tuple[Term, bool], ...]
    result: T


@dataclass
class _Forks:
    """The decisions of one run: those that it has to take, then True for each new one."""

    told: list[bool]
    taken: list[tuple[Term, bool]] = field(default_factory=list)
    known: dict[int, bool] = field(default_factory=dict)

    def decide(self, term: Term) -> bool:
        if id(term) not in self.known:
            place = len(self.taken)
            value = self.told[place] if place < len(self.told) else True
            self.taken.append((term, value))
            self.known[id(term)] = value
        return self.known[id(term)]


class Tracing:
    """Terms over names. Lengths and counts are integers, as in `model/integers.py`; the configuration is read, too."""

    def __init__(self) -> None:
        self._terms: dict[tuple[Any, ...], Term] = {}
        self._forks: _Forks | None = None
        self.zero: Any = 0
        self.one: Any = 1
        self.true, self.false = self.constant(True), self.constant(False)
        self.row_width, self.drafts, self.window = (self.read(f"d.{n}") for n in ("row_width", "drafts", "window"))
        self.overlap, self.spec_v1, self.spec_v2, self.windowed, self.tree = (
            self.read(f"d.{name}", is_flag=True) for name in ("overlap", "spec_v1", "spec_v2", "windowed", "tree")
        )

    def term(self, operator: str, arguments: tuple[Any, ...], is_flag: bool) -> Term:
        """The one term of this operator and these arguments (terms, or the value of a constant, or a name)."""
        key = (operator, *(id(a) if isinstance(a, Term) else (type(a), a) for a in arguments))
        if key not in self._terms:
            self._terms[key] = Term(self, operator, arguments, is_flag)
        return self._terms[key]

    def constant(self, value: int | bool) -> Any:
        return self.term("constant", (value,), isinstance(value, bool))

    def read(self, name: str, is_flag: bool = False) -> Any:
        """A value that is known when the rule is run, by its name."""
        return self.term("read", (name,), is_flag)

    def lift(self, value: Any) -> Term:
        return value if isinstance(value, Term) else self.constant(value)

    def operation(self, operator: str, *arguments: Any) -> Term:
        terms = tuple(self.lift(a) for a in arguments)
        is_flag = operator in FLAG_OPERATORS or (operator == "where" and all(t.is_flag for t in terms[1:]))
        return self.term(operator, terms, is_flag)

    def decide(self, term: Term) -> bool:
        """A term is asked for its truth: only code that is run on every path may do that, a rule uses `where`."""
        if term.constant is not None:
            return bool(term.constant)
        if self._forks is None:
            raise TypeError(f"a rule branches on a value instead of using where: {term!r}")
        return self._forks.decide(term if term.is_flag else self.operation("not_equal", term, 0))

    def every_path(self, run: Callable[[], T]) -> list[Path[T]]:
        """Run code once for each way through its branches, those that decide True before those that decide False."""
        paths: list[Path[T]] = []
        told: list[bool] = []
        while True:
            outer, self._forks = self._forks, _Forks(told)
            try:
                result, taken = run(), self._forks.taken
            finally:
                self._forks = outer
            paths.append(Path(tuple(taken), result))
            told = [value for _, value in taken]
            while told and not told[-1]:
                told.pop()
            if not told:
                return paths
            told[-1] = False

    def merged(self, paths: Sequence[Path[Any]], place: int = 0) -> Any:
        """The results as one term, that of the path which is taken. What all paths agree on is decided by none of them."""
        if place == len(paths[0].decisions):
            return paths[0].result
        term = paths[0].decisions[place][0]
        yes = self.merged([p for p in paths if p.decisions[place][1]], place + 1)
        no = self.merged([p for p in paths if not p.decisions[place][1]], place + 1)
        return self.where(term, yes, no)

    def every(self, *flags: Any) -> Any:
        return self._folded("and", flags, neutral=True)

    def some(self, *flags: Any) -> Any:
        return self._folded("or", flags, neutral=False)

    def _folded(self, operator: str, flags: tuple[Any, ...], neutral: bool) -> Any:
        """A chain of one operator; constants decide it or drop out."""
        terms = [self.lift(flag) for flag in flags]
        if any(t.constant is (not neutral) for t in terms):
            return self.constant(not neutral)
        terms = [t for t in terms if t.constant is not neutral]
        return self.term(operator, tuple(terms), True) if len(terms) > 1 else (terms or [self.constant(neutral)])[0]

    def no(self, flag: Any) -> Any:
        term = self.lift(flag)
        return self.operation("not", term) if term.constant is None else self.constant(not term.constant)

    def where(self, flag: Any, then: Any, otherwise: Any) -> Any:
        condition, yes, no = self.lift(flag), self.lift(then), self.lift(otherwise)
        if condition.constant is not None:
            return then if condition.constant else otherwise
        if yes is no:
            return then
        for value in (True, False):
            if yes.constant is value and no.is_flag:
                return self.some(condition, no) if value else self.every(self.no(condition), no)
            if no.constant is value and yes.is_flag:
                return self.some(self.no(condition), yes) if value else self.every(condition, yes)
        return self.operation("where", condition, yes, no)

    def ceil_pages(self, length: Any) -> Any:
        return self.operation("ceil_pages", length)

    def floor_pages(self, length: Any) -> Any:
        return self.operation("floor_pages", length)

    def tokens(self, pages: Any) -> Any:
        return self.operation("tokens", pages)

    def arbitrary(self, state: type, prefix: str = "s") -> Any:
        """Any state of a machine: each field is read by its name."""
        fields = dataclasses.fields(state)
        return state(**{f.name: self.read(f"{prefix}.{f.name}", f.metadata["sort"] == "flag") for f in fields})

    def parameters(self, params: Mapping[str, str]) -> SimpleNamespace:
        return SimpleNamespace(**{name: self.read(f"p.{name}", sort == "flag") for name, sort in params.items()})


def reads_of(*values: Any) -> frozenset[str]:
    """The names that terms read."""
    names, waiting = set(), [value for value in values if isinstance(value, Term)]
    seen = set(map(id, waiting))
    while waiting:
        term = waiting.pop()
        if term.operator == "read":
            names.add(term.arguments[0])
            continue
        for argument in term.arguments:
            if isinstance(argument, Term) and id(argument) not in seen:
                seen.add(id(argument))
                waiting.append(argument)
    return frozenset(names)


def evaluate(term: Any, values: Mapping[str, int | bool], page_size: int) -> int | bool:
    """The value of a term when its reads are known: the meaning of each operator, which compiled code must have too."""
    if not isinstance(term, Term):
        return term
    if term.operator == "constant":
        return term.arguments[0]
    if term.operator == "read":
        return values[term.arguments[0]]
    return MEANING[term.operator](page_size, *(evaluate(a, values, page_size) for a in term.arguments))


MEANING: dict[str, Callable[..., int | bool]] = {
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "less": lambda _, a, b: a < b,
    "less_or_equal": lambda _, a, b: a <= b,
    "equal": lambda _, a, b: a == b,
    "not_equal": lambda _, a, b: a != b,
    "and": lambda _, *flags: all(flags),
    "or": lambda _, *flags: any(flags),
    "not": lambda _, flag: not flag,
    "where": lambda _, flag, then, otherwise: then if flag else otherwise,
    "ceil_pages": lambda page_size, length: -(-length // page_size),
    "floor_pages": lambda page_size, length: length // page_size,
    "tokens": lambda page_size, pages: pages * page_size,
}
