"""The oracle's integers and the proof's Z3 terms give the same step, for arbitrary states, parameters and page sizes."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model.integers import Integers
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import ALL_INVARIANTS
from kvproof.spec.state import FIELDS, Ledger

VALUES = {
    "length": st.integers(0, 40),
    "count": st.integers(-2, 12),
    "flag": st.booleans(),
    "phase": st.integers(0, 3),
}
TABLE = {**ACTIONS, **{f"{f.action} with {f.id}": f.deviate() for f in FAULTS.values()}}


@cache
def symbolic(name: str) -> tuple[Symbols, Ledger, SimpleNamespace, list[Any]]:
    """The step as Z3 terms: the successor's fields, then guards, side conditions and invariants of the successor."""
    d, action = Symbols(), TABLE[name]
    before, params = d.ledger(), d.parameters(action.params)
    terms = evaluate(d, action, before, params)
    return d, before, params, terms


def evaluate(d: Any, action: Action, before: Ledger, params: SimpleNamespace) -> list[Any]:
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    fields = [getattr(after, f.name) for f in FIELDS]
    flags = [action.applies(d, before), *(g.holds for g in step.guards), *(c.holds for c in conditions)]
    return [*fields, *flags, *(i.holds(d, after) for i in ALL_INVARIANTS.values())]


def substituted(d: Symbols, pairs: list[tuple[Any, Any]], page_size: int, term: Any) -> Any:
    if isinstance(term, PagedLength):
        pages, offset = (substituted(d, pairs, page_size, t) for t in (term.pages, term.offset))
        return pages * page_size + offset
    if not z3.is_expr(term):
        return term
    value = z3.simplify(z3.substitute(term, *pairs))
    return value.as_long() if z3.is_int_value(value) else z3.is_true(value)


def bindings(sort: str, symbol: Any, value: Any, page_size: int) -> list[tuple[Any, Any]]:
    if sort == "length":
        return [
            (symbol.pages, z3.IntVal(value // page_size)),
            (symbol.offset, z3.IntVal(value % page_size)),
        ]
    return [(symbol, z3.BoolVal(value) if sort == "flag" else z3.IntVal(value))]


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), page_size=st.integers(1, 9), row_width=st.integers(1, 60))
def test_oracle_and_z3_give_the_same_step(name: str, data: st.DataObject, page_size: int, row_width: int) -> None:
    d, before, params, terms = symbolic(name)
    action = TABLE[name]
    state = {f.name: data.draw(VALUES[f.metadata["sort"]], label=f.name) for f in FIELDS}
    given_params = {n: data.draw(VALUES[sort], label=n) for n, sort in action.params.items()}
    expected = evaluate(Integers(page_size, row_width), action, Ledger(**state), SimpleNamespace(**given_params))
    pairs = [(d.page_size, z3.IntVal(page_size)), *bindings("length", d.row_width, row_width, page_size)]
    for f in FIELDS:
        pairs += bindings(f.metadata["sort"], getattr(before, f.name), state[f.name], page_size)
    for n, sort in action.params.items():
        pairs += bindings(sort, getattr(params, n), given_params[n], page_size)
    assert [substituted(d, pairs, page_size, t) for t in terms] == expected
