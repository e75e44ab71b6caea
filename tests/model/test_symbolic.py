"""Lengths as pages and an offset: their arithmetic is that of integers, for every page size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import z3

from kvproof.model.integers import Integers
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.state import FIELDS, Ledger

LENGTHS = range(8)


def paged(d: Symbols, tokens: int, page_size: int) -> PagedLength:
    return PagedLength(z3.IntVal(tokens // page_size), z3.IntVal(tokens % page_size), d.page_size)


def number(term: Any, d: Symbols, page_size: int) -> int | bool:
    """The value of a term once the page size is known: a length in tokens."""
    if isinstance(term, PagedLength):
        return number(term.pages, d, page_size) * page_size + number(term.offset, d, page_size)
    value = z3.simplify(z3.substitute(term, (d.page_size, z3.IntVal(page_size))))
    return value.as_long() if z3.is_int_value(value) else z3.is_true(value)


@pytest.mark.parametrize("page_size", [1, 2, 3, 5])
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.lt, operator.le, operator.eq])
def test_lengths_compute_as_integers_do(operation: Callable[[Any, Any], Any], page_size: int) -> None:
    d = Symbols()
    for a in LENGTHS:
        for b in LENGTHS:
            if operation is operator.sub and a < b:
                continue  # the caller of a subtraction knows that the left side is larger
            found = operation(paged(d, a, page_size), paged(d, b, page_size))
            assert number(found, d, page_size) == operation(a, b), (a, b)


@pytest.mark.parametrize("page_size", [1, 2, 3, 5])
def test_pages_and_tokens_are_those_of_integers(page_size: int) -> None:
    d, integers = Symbols(), Integers(page_size, 64)
    for tokens in LENGTHS:
        length = paged(d, tokens, page_size)
        assert number(d.ceil_pages(length), d, page_size) == integers.ceil_pages(tokens)
        assert number(d.floor_pages(length), d, page_size) == integers.floor_pages(tokens)
        assert number(d.tokens(z3.IntVal(tokens)), d, page_size) == integers.tokens(tokens)
    assert (number(d.zero, d, page_size), number(d.one, d, page_size)) == (0, 1)


def test_a_length_stays_well_formed_for_every_page_size() -> None:
    """The sum and the difference of proper pairs are proper pairs: shown by Z3, the page size a free symbol."""
    d = Symbols()
    a, b = d.length("a"), d.length("b")
    facts = [d.page_size >= 1, a.is_well_formed(), b.is_well_formed()]
    for wrong in (z3.Not((a + b).is_well_formed()), z3.And(b <= a, z3.Not((a - b).is_well_formed()))):
        solver = z3.Solver()
        solver.add(*facts, wrong)
        assert solver.check() == z3.unsat


def test_connectives_are_those_of_any_solver() -> None:
    """SMT-LIB knows no conjunction of fewer than two."""
    d, p = Symbols(), z3.Bool("p")
    for few in ((), (p,)):
        assert d.every(*few).num_args() >= 2 and d.some(*few).num_args() >= 2
        assert z3.simplify(d.every(*few) == z3.And(*few)).eq(z3.BoolVal(True))
        assert z3.simplify(d.some(*few) == z3.Or(*few)).eq(z3.BoolVal(True))
    assert z3.is_true(d.true) and z3.is_false(d.false)


def test_a_choice_between_lengths_is_a_length() -> None:
    d, p = Symbols(), z3.Bool("p")
    chosen = d.where(p, d.one, d.zero)
    assert isinstance(chosen, PagedLength)
    assert z3.is_true(z3.simplify(z3.substitute(chosen == d.one, (p, z3.BoolVal(True)))))
    assert d.where(p, d.page_size, d.page_size) is d.page_size


def test_an_arbitrary_ledger_has_a_symbol_of_its_own_for_each_field() -> None:
    d = Symbols()
    s, other = d.arbitrary(Ledger), d.arbitrary(Ledger, "'")
    names = [str(value.pages if isinstance(value, PagedLength) else value) for value in vars(s).values()]
    assert len(set(names)) == len(FIELDS) == len(vars(s))
    assert set(names).isdisjoint(str(getattr(v, "pages", v)) for v in vars(other).values())
    assert isinstance(s, Ledger)


def test_no_configuration_has_both_kinds_of_speculation() -> None:
    d = Symbols()
    solver = z3.Solver()
    solver.add(*d.configuration())
    assert solver.check() == z3.sat
    solver.add(d.spec_v1, d.spec_v2)
    assert solver.check() == z3.unsat
