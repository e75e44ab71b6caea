"""Whether the two interpreters of the rules agree: the oracle's integers and the proof's Z3 terms, over one step.

A rule is written once and run over two domains. What a proof shows holds for what a replay checks only if both give the same
successor, guards, side conditions and invariants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.integers import Integers
from kvproof.model.symbolic import PagedLength, Symbols
from kvproof.spec.actions import Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.machine import Machine

LENGTHS = ("row_width", "drafts", "window")
FLAGS = ("overlap", "spec_v1", "spec_v2", "windowed", "tree")
"""What both domains read of a configuration, beside the page size."""


def parts_of_step(d: Any, machine: Machine, action: Action, before: Any, params: SimpleNamespace) -> dict[str, Any]:
    """All that a step says, by name: the successor's fields, then what applies, guards, conditions and invariants."""
    step = action.run(d, before, params)
    after, conditions = apply_effects(d, step.after, step.effects)
    return {
        **{f.name: getattr(after, f.name) for f in dataclasses.fields(after)},
        "applies": action.applies(d, before),
        **{f"guard {place}, {g.sentence}": g.holds for place, g in enumerate(step.guards)},
        **{f"condition {place}, {c.sentence}": c.holds for place, c in enumerate(conditions)},
        **{i.id: i.holds(d, after) for i in machine.all_invariants.values()},
    }


def disagreements(
    machine: Machine, action: Action, d: Integers, before: Any, params: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """By name what the oracle says and what Z3 says, where the two differ. Nothing: they agree."""
    by_oracle = parts_of_step(d, machine, action, before, SimpleNamespace(**params))
    by_z3 = step_by_z3(machine, action, d, before, params)
    assert by_oracle.keys() == by_z3.keys(), "a rule has the same parts in every domain"
    return {name: (said, by_z3[name]) for name, said in by_oracle.items() if said != by_z3[name]}


def step_by_z3(
    machine: Machine, action: Action, d: Integers, before: Any, params: Mapping[str, Any]
) -> dict[str, int | bool]:
    """The step's parts as the proof has them, with numbers in place of its symbols."""
    symbols, state, given, terms, together = _symbolic(machine, action)
    pairs = [(symbols.page_size, z3.IntVal(d.page_size))]
    for name in LENGTHS:
        pairs += _pairs("length", getattr(symbols, name), getattr(d, name), d.page_size)
    for name in FLAGS:
        pairs += _pairs("flag", getattr(symbols, name), getattr(d, name), d.page_size)
    for f in dataclasses.fields(before):
        pairs += _pairs(f.metadata["sort"], getattr(state, f.name), getattr(before, f.name), d.page_size)
    for name, sort in action.params.items():
        pairs += _pairs(sort, getattr(given, name), params[name], d.page_size)
    values = iter(z3.simplify(z3.substitute(together, *pairs)).children())
    return {name: _value(term, values, d.page_size) for name, term in terms.items()}


Symbolic = tuple[Symbols, Any, SimpleNamespace, dict[str, Any], Any]


def _symbolic(machine: Machine, action: Action) -> Symbolic:
    """The step as Z3 terms, made once for each rule, and all its terms as arguments of one: they share most of themselves."""
    return _terms(_ById((machine, action)))


@dataclasses.dataclass(frozen=True)
class _ById:
    """Rules hold functions and dictionaries: what tells them apart is which they are."""

    of: tuple[Machine, Action]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.of)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and all(mine is theirs for mine, theirs in zip(self.of, other.of, strict=True))


@cache
def _terms(rule: _ById) -> Symbolic:
    machine, action = rule.of
    d = Symbols()
    before, params = d.arbitrary(machine.state), d.parameters(action.params)
    parts = parts_of_step(d, machine, action, before, params)
    terms = [term for part in parts.values() for term in _z3_terms(part)]
    step = z3.Function("step", *(term.sort() for term in terms), z3.BoolSort())
    return d, before, params, parts, step(*terms)


def _z3_terms(part: Any) -> list[Any]:
    if isinstance(part, PagedLength):
        return [*_z3_terms(part.pages), *_z3_terms(part.offset)]
    return [part] if z3.is_expr(part) else []


def _pairs(sort: str, symbol: Any, value: Any, page_size: int) -> list[tuple[Any, Any]]:
    if sort == "length":
        return [(symbol.pages, z3.IntVal(value // page_size)), (symbol.offset, z3.IntVal(value % page_size))]
    return [(symbol, z3.BoolVal(value) if sort == "flag" else z3.IntVal(value))]


def _value(part: Any, values: Iterator[Any], page_size: int) -> Any:
    """A part of the step in numbers; `values` are those of its terms, in order."""
    if isinstance(part, PagedLength):
        pages = _value(part.pages, values, page_size)
        return pages * page_size + _value(part.offset, values, page_size)
    if not z3.is_expr(part):
        return part
    value = next(values)
    return value.as_long() if z3.is_int_value(value) else z3.is_true(value)
