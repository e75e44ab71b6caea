"""What a copy says of pages, on small rows, since no solver decides it of all: whether it is wrong, or means something else.

Two formulas that differ on rows of any length differ on rows of three positions, or at their ends, which is seen there too.
"""

from __future__ import annotations

from collections.abc import Iterator

import z3

from rule_mutation.mutant_spec import SpecCopy
from rule_mutation.mutant_terms import same, solved


def is_refuted(copy: SpecCopy, effect: str) -> bool:
    """Three rows, positions and pages of which all statements hold, and one does not after the effect.

    Everything else may be empty and free, so it refutes the lemma on rows of any length too. What bounds a finite instance is
    demanded after the effect, never asked.
    """
    lemmas = copy.page_lemmas
    size = lemmas.SIZE
    unbounded = lemmas.Universe(size)
    unbounded.inside = lemmas.Universe().inside
    given = (lemmas.FIRST, lemmas.LAST, lemmas.COUNT, lemmas.DUPLICATES, lemmas.FREED_FROM)
    after = lemmas.state(lemmas.AFTER)
    small = [*(z3.And(end >= 0, end <= size) for end in given), *(after.row_end[i] <= size for i in range(size))]
    before = lemmas.holds_before(lemmas.FINITE).values()
    does, sides = lemmas.meaning(lemmas.FINITE, effect), lemmas.conditions(lemmas.FINITE, effect).values()
    fails = z3.Not(z3.And(*lemmas.holds_after(unbounded).values()))
    return bool(solved(*before, *does, *sides, *small, fails) == z3.sat)


def pages_that_differ(right: SpecCopy, wrong: SpecCopy) -> list[str]:
    """Statements on pages, and meanings of effects, that allow something else on small rows."""
    return [*_statements(right, wrong), *_meanings(right, wrong)]


def _statements(right: SpecCopy, wrong: SpecCopy) -> Iterator[str]:
    """Those that say something else, if all together allow other states."""
    known, said = (copy.page_lemmas.holds_before(copy.page_lemmas.FINITE) for copy in (right, wrong))
    changed = [name for name, formula in said.items() if not same([known[name]], [formula])]
    if changed and solved(z3.And(*known.values()) != z3.And(*said.values())) != z3.unsat:
        yield from changed


def _meanings(right: SpecCopy, wrong: SpecCopy) -> Iterator[str]:
    """Where the statements and the conditions of an effect hold."""
    before = list(right.page_lemmas.holds_before(right.page_lemmas.FINITE).values())
    for effect in right.page_lemmas.EFFECTS:
        known, said = (copy.page_lemmas.meaning(copy.page_lemmas.FINITE, effect) for copy in (right, wrong))
        sides = list(right.page_lemmas.conditions(right.page_lemmas.FINITE, effect).values())
        if not same(known, said) and solved(*before, *sides, z3.And(*known) != z3.And(*said)) != z3.unsat:
            yield effect
