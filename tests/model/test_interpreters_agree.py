"""The oracle's integers and the proof's Z3 terms give the same step, for arbitrary states, parameters and page sizes."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model.integers import Integers
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES, Machine

VALUES = {
    "length": st.integers(0, 40),
    "count": st.integers(-2, 12),
    "flag": st.booleans(),
    "phase": st.integers(0, 3),
}
TABLE: dict[str, tuple[Machine, Action]] = {
    **{a.name: (m, a) for m in MACHINES for a in m.actions.values()},
    **{f"{name} with {f.id}": (f.machine, a) for f in FAULTS.values() for name, a in f.deviations.items()},
}
CONFIGURATIONS = st.sampled_from(
    [
        {},
        {"overlap": True},
        {"speculation": 1, "drafts": 3},
        {"overlap": True, "speculation": 2, "drafts": 2},
        {"window": 5},
        {"window": 1, "overlap": True},
        {"tree": False},
    ]
)


@cache
def symbolic(name: str) -> tuple[Symbols, Any, SimpleNamespace, list[Any]]:
    """The step as Z3 terms: the successor's fields, then guards, side conditions and invariants of the successor."""
    machine, action = TABLE[name]
    d = Symbols()
    before, params = d.arbitrary(machine.state), d.parameters(action.params)
    return d, before, params, evaluate(d, machine, action, before, params)


def evaluate(d: Any, machine: Machine, action: Action, before: Any, params: SimpleNamespace) -> list[Any]:
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    fields = [getattr(after, f.name) for f in dataclasses.fields(after)]
    flags = [action.applies(d, before), *(g.holds for g in step.guards), *(c.holds for c in conditions)]
    return [*fields, *flags, *(i.holds(d, after) for i in machine.all_invariants.values())]


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
@given(data=st.data(), page_size=st.integers(1, 9), row_width=st.integers(1, 60), config=CONFIGURATIONS)
def test_oracle_and_z3_give_the_same_step(
    name: str, data: st.DataObject, page_size: int, row_width: int, config: dict[str, Any]
) -> None:
    d, before, params, terms = symbolic(name)
    machine, action = TABLE[name]
    fields = dataclasses.fields(machine.state)
    state = {f.name: data.draw(VALUES[f.metadata["sort"]], label=f.name) for f in fields}
    given_params = {n: data.draw(VALUES[sort], label=n) for n, sort in action.params.items()}
    integers = Integers(page_size, row_width, **config)
    expected = evaluate(integers, machine, action, machine.state(**state), SimpleNamespace(**given_params))
    pairs = [(d.page_size, z3.IntVal(page_size))]
    for length in ("row_width", "drafts", "window"):
        pairs += bindings("length", getattr(d, length), getattr(integers, length), page_size)
    for flag in ("overlap", "spec_v1", "spec_v2", "windowed", "tree"):
        pairs += bindings("flag", getattr(d, flag), getattr(integers, flag), page_size)
    for f in fields:
        pairs += bindings(f.metadata["sort"], getattr(before, f.name), state[f.name], page_size)
    for n, sort in action.params.items():
        pairs += bindings(sort, getattr(params, n), given_params[n], page_size)
    assert [substituted(d, pairs, page_size, t) for t in terms] == expected
