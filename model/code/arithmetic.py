"""Integers of the code under proof: Python's own, lengths in tokens, and counts of pages.

A length is a pair (pages, offset) with 0 <= offset < P (`model/symbolic.py`). `pages` may be negative, so that differences
and Python's floor division mean the same for negative lengths. A count is an integer term of Z3. Lengths become
counts and counts become lengths by division and multiplication with the page size only: code that adds one to the other is
not understood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.symbolic import PagedLength, Symbols

LARGEST_CONSTANT = 8
"""The largest number of tokens that a constant of the code may stand for: each token is a term, as the page size is unknown."""


def is_count(value: Any) -> bool:
    return isinstance(value, z3.ArithRef)


def is_flag(value: Any) -> bool:
    return isinstance(value, (bool, z3.BoolRef))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, PagedLength)) or is_count(value)


def page_size_of(d: Symbols) -> PagedLength:
    """P as the code sees it: a length of one page."""
    return d.tokens(z3.IntVal(1))


def is_page_size(value: Any) -> bool:
    def is_literally(term: Any, number: int) -> bool:
        return z3.is_int_value(term) and bool(term.as_long() == number)

    return isinstance(value, PagedLength) and is_literally(value.pages, 1) and is_literally(value.offset, 0)


def as_length(d: Symbols, value: Any) -> PagedLength:
    """A number as a length. Raises NotUnderstoodError for a count and for a large constant."""
    if isinstance(value, PagedLength):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_CONSTANT:
        tokens = d.zero
        for _ in range(abs(value)):
            tokens = tokens + d.one
        return tokens if value >= 0 else d.zero - tokens
    if isinstance(value, int):
        raise NotUnderstoodError(f"a constant of more than {LARGEST_CONSTANT} tokens")
    raise NotUnderstoodError("a count of pages where a length in tokens is expected")


def add(d: Symbols, a: Any, b: Any) -> Any:
    return _lengths_or_counts(d, a, b, lambda x, y: x + y)


def subtract(d: Symbols, a: Any, b: Any) -> Any:
    return _lengths_or_counts(d, a, b, lambda x, y: x - y)


def multiply(d: Symbols, a: Any, b: Any) -> Any:
    if is_page_size(b) and is_count(a):
        return d.tokens(a)
    if is_page_size(a) and is_count(b):
        return d.tokens(b)
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int) and is_count(a):
        return a * b
    if isinstance(b, int) and b == 1:
        return a  # the page size stays the page size
    if isinstance(b, int) and abs(b) <= LARGEST_CONSTANT:
        return _repeated(d, a, b)
    raise NotUnderstoodError("a product of two unknown numbers")


def _repeated(d: Symbols, length: PagedLength, times: int) -> PagedLength:
    total = d.zero
    for _ in range(abs(times)):
        total = total + length
    return total if times >= 0 else d.zero - total


def floor_divide(d: Symbols, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        return a // b
    if is_page_size(b):
        return as_length(d, a).pages
    if is_count(a) and isinstance(b, int) and b > 0:
        return a / b
    raise NotUnderstoodError("a division by something other than the page size")


def remainder(d: Symbols, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        return a % b
    if is_page_size(b):
        return PagedLength(z3.IntVal(0), as_length(d, a).offset, d.page_size)
    if is_count(a) and isinstance(b, int) and b > 0:
        return a % b
    raise NotUnderstoodError("a remainder of a division by something other than the page size")


def less(d: Symbols, a: Any, b: Any) -> Any:
    return _lengths_or_counts(d, a, b, lambda x, y: x < y)


def equal(d: Symbols, a: Any, b: Any) -> Any:
    return _lengths_or_counts(d, a, b, lambda x, y: x == y)


def negative(d: Symbols, a: Any) -> Any:
    return subtract(d, 0, a)


def _lengths_or_counts(d: Symbols, a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    """Python's integers fit both; a length and a count do not fit each other."""
    if isinstance(a, PagedLength) or isinstance(b, PagedLength):
        return operation(as_length(d, a), as_length(d, b))
    return operation(a, b)


def choose(d: Symbols, flag: Any, then: Any, otherwise: Any) -> Any:
    """Either number, as one term."""
    if isinstance(flag, bool):
        return then if flag else otherwise
    if isinstance(then, PagedLength) or isinstance(otherwise, PagedLength):
        return d.where(flag, as_length(d, then), as_length(d, otherwise))
    return z3.If(flag, then, otherwise)


def smallest(d: Symbols, numbers: list[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = choose(d, less(d, number, found), number, found)
    return found


def largest(d: Symbols, numbers: list[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = choose(d, less(d, found, number), number, found)
    return found
