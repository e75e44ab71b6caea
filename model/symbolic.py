"""The domain of Z3: lengths as (page, offset) pairs, so that the page size P is a free symbol.

A length is q * P + r with 0 <= r < P. Then `+`, `-`, `<`, floor and ceil are linear in q, r and P, although P is
unknown: one proof covers every page size. (A direct `mod P` would be non-linear and hopeless.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from types import SimpleNamespace
from typing import Any

import z3

MOST_KEPT = 20_000
"""Results of one operation that are kept."""


def _kept(operation: Callable[[PagedLength, Any], Any]) -> Callable[[PagedLength, Any], Any]:
    """An operation that builds its terms once. The paths of a function share most of their operations, and Z3's Python interface
    takes a hundred microseconds for one."""
    made: dict[tuple[Terms, Terms], tuple[Any, Any, Any]] = {}

    @wraps(operation)
    def found(self: PagedLength, other: PagedLength) -> Any:
        key = self.terms, other.terms
        if key not in made:
            if len(made) == MOST_KEPT:
                made.clear()
            made[key] = operation(self, other), self, other  # the numbers of terms are their own while these live
        return made[key][0]

    return found


Terms = tuple[tuple[bool, int], ...]
"""The numbers that Z3 gives to terms: the same term has the same one. A number of pages may also be known: a Python integer."""


class PagedLength:
    """A length of `pages` whole pages and `offset` tokens; `size` is the symbolic page size."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, pages: Any, offset: Any, size: Any) -> None:
        self.pages, self.offset, self.size = pages, offset, size

    @cached_property
    def terms(self) -> Terms:
        terms = (self.pages, self.offset, self.size)
        return tuple((True, term) if isinstance(term, int) else (False, term.get_id()) for term in terms)

    @_kept
    def __add__(self, other: Any) -> PagedLength:
        offset = self.offset + other.offset
        carries = offset >= self.size
        pages = self.pages + other.pages + z3.If(carries, 1, 0)
        return PagedLength(pages, z3.If(carries, offset - self.size, offset), self.size)

    @_kept
    def __sub__(self, other: Any) -> PagedLength:
        """Only for self >= other, as for every domain."""
        borrows = self.offset < other.offset
        pages = self.pages - other.pages - z3.If(borrows, 1, 0)
        offset = self.offset - other.offset + z3.If(borrows, self.size, 0)
        return PagedLength(pages, offset, self.size)

    @_kept
    def __lt__(self, other: Any) -> Any:
        return z3.Or(self.pages < other.pages, z3.And(self.pages == other.pages, self.offset < other.offset))

    @_kept
    def __le__(self, other: Any) -> Any:
        return z3.Not(other < self)

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, PagedLength)
        return self._same(other)

    @_kept
    def _same(self, other: Any) -> Any:
        return z3.And(self.pages == other.pages, self.offset == other.offset)

    def is_well_formed(self) -> Any:
        return z3.And(self.pages >= 0, self.offset >= 0, self.offset < self.size)


class Symbols:
    """Z3 terms over one symbolic page size, row width and configuration."""

    def __init__(self) -> None:
        self.page_size: Any = z3.Int("P")
        self.overlap: Any = z3.Bool("overlap")
        self.spec_v1: Any = z3.Bool("spec_v1")
        self.spec_v2: Any = z3.Bool("spec_v2")
        self.windowed: Any = z3.Bool("windowed")
        self.tree: Any = z3.Bool("tree")
        self.true: Any = z3.BoolVal(True)
        self.false: Any = z3.BoolVal(False)
        single = self.page_size == 1
        self.zero = PagedLength(z3.IntVal(0), z3.IntVal(0), self.page_size)
        self.one = PagedLength(z3.If(single, 1, 0), z3.If(single, 0, 1), self.page_size)
        self.row_width, self.drafts, self.window = map(self.length, ("row_width", "drafts", "window"))

    def configuration(self) -> list[Any]:
        """Every configuration that a server accepts: v1 never overlaps, v2 always does (sglang #22651)."""
        lengths = (self.row_width, self.drafts, self.window)
        return [
            self.page_size >= 1,
            *(length.is_well_formed() for length in lengths),
            self.one <= self.drafts,
            z3.Implies(self.windowed, self.one <= self.window),
            z3.Implies(self.spec_v1, z3.Not(self.overlap)),
            z3.Implies(self.spec_v2, self.overlap),
        ]

    def length(self, name: str) -> PagedLength:
        return PagedLength(z3.Int(f"{name}.pages"), z3.Int(f"{name}.offset"), self.page_size)

    # SMT-LIB has no conjunction of fewer than two; Z3 would print one that no other solver reads.
    def every(self, *flags: Any) -> Any:
        return z3.And(*flags) if len(flags) > 1 else z3.And(*flags, z3.BoolVal(True), z3.BoolVal(True))

    def some(self, *flags: Any) -> Any:
        return z3.Or(*flags) if len(flags) > 1 else z3.Or(*flags, z3.BoolVal(False), z3.BoolVal(False))

    def no(self, flag: Any) -> Any:
        return z3.Not(flag)

    def where(self, flag: Any, then: Any, otherwise: Any) -> Any:
        if then is otherwise:
            return then
        if isinstance(then, PagedLength):
            pages = z3.If(flag, then.pages, otherwise.pages)
            return PagedLength(pages, z3.If(flag, then.offset, otherwise.offset), self.page_size)
        return z3.If(flag, then, otherwise)

    def ceil_pages(self, length: Any) -> Any:
        return length.pages + z3.If(length.offset > 0, 1, 0)

    def floor_pages(self, length: Any) -> Any:
        return length.pages

    def tokens(self, pages: Any) -> PagedLength:
        return PagedLength(pages, z3.IntVal(0), self.page_size)

    def variable(self, sort: str, name: str) -> Any:
        """A fresh symbol of a sort of the ledger or of a parameter."""
        if sort == "length":
            return self.length(name)
        return z3.Bool(name) if sort == "flag" else z3.Int(name)

    def is_well_formed(self, sort: str, value: Any) -> Any:
        """What the sort alone says: lengths are proper pairs. Counts and phases may be any integer."""
        return value.is_well_formed() if sort == "length" else z3.BoolVal(True)

    def arbitrary(self, state: type, suffix: str = "") -> Any:
        """Any state of a machine, every field a symbol; states of different suffixes have nothing to do with each other."""
        fields = dataclasses.fields(state)
        return state(**{f.name: self.variable(f.metadata["sort"], f.name + suffix) for f in fields})

    def parameters(self, params: Mapping[str, str]) -> SimpleNamespace:
        return SimpleNamespace(**{name: self.variable(sort, f"${name}") for name, sort in params.items()})

    def domain_facts(self, s: Any, p: SimpleNamespace, params: Mapping[str, str]) -> list[Any]:
        facts = self.configuration()
        facts += [self.is_well_formed(f.metadata["sort"], getattr(s, f.name)) for f in dataclasses.fields(s)]
        facts += [self.is_well_formed(sort, getattr(p, name)) for name, sort in params.items()]
        return facts
