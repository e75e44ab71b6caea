"""Whether two copies mean the same by pages: on small rows, since no solver decides it of all.

Two formulas that differ on rows of any length differ on rows of three positions, or at their ends, which is seen there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from rule_mutation.mutant_spec import SpecCopy
from rule_mutation.mutant_terms import RLIMIT, same

Formulas = list[Any]


def pages_that_differ(right: SpecCopy, wrong: SpecCopy) -> list[str]:
    """Statements on pages, and meanings of effects, that allow something else on small rows."""
    return [*_statements(right, wrong), *_meanings(right, wrong)]


def _statements(right: SpecCopy, wrong: SpecCopy) -> Iterator[str]:
    """Those that say something else, if all together allow other states."""
    known, said = (copy.page_lemmas.holds_before(copy.page_lemmas.FINITE) for copy in (right, wrong))
    changed = [name for name, formula in said.items() if not same([known[name]], [formula])]
    if changed and _can_be([z3.And(*known.values()) != z3.And(*said.values())]):
        yield from changed


def _meanings(right: SpecCopy, wrong: SpecCopy) -> Iterator[str]:
    """Where the statements and the conditions of an effect hold."""
    before = list(right.page_lemmas.holds_before(right.page_lemmas.FINITE).values())
    for effect in right.page_lemmas.EFFECTS:
        known, said = (copy.page_lemmas.meaning(copy.page_lemmas.FINITE, effect) for copy in (right, wrong))
        sides = list(right.page_lemmas.conditions(right.page_lemmas.FINITE, effect).values())
        if not same(known, said) and _can_be([*before, *sides, z3.And(*known) != z3.And(*said)]):
            yield effect


def _can_be(formulas: Formulas) -> bool:
    solver = z3.Solver()
    solver.set("rlimit", RLIMIT)
    solver.add(*formulas)
    return bool(solver.check() != z3.unsat)
