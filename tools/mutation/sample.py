"""A sample of mutants that is spread evenly over files and kinds of mistake, the same for the same seed.

Chance is a hash of the mutant's own name, not a row of numbers that all mutants draw from: a change of one function leaves the
sample of all others as it is, so that what was read by hand stays of use.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence

from rule_mutation.mutants import Mutant


def by_file_and_kind(mutant: Mutant) -> tuple[str, str]:
    return mutant.path, mutant.operator


def evenly(
    mutants: Sequence[Mutant],
    count: int | None,
    seed: int,
    group_of: Callable[[Mutant], tuple[str, str]] = by_file_and_kind,
) -> list[Mutant]:
    """So many, in the order of the source: from each group in turn one, until there are enough. None: all."""
    if count is None or count >= len(mutants):
        return list(mutants)
    groups: dict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[group_of(mutant)].append(mutant)
    for group in groups.values():
        group.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    chosen: set[str] = set()
    while len(chosen) < count:
        for group in groups.values():
            if group and len(chosen) < count:
                chosen.add(group.pop().key)
    return [mutant for mutant in mutants if mutant.key in chosen]
