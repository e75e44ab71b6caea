"""What the loop saw exercised, from its bits to the names of a report and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from kvproof.conformance.compiled.layout import NOT_SHOWN_BITS, PLANES, SHOWN_BITS, SHOWN_ROWS, Array
from kvproof.conformance.replay.coverage import COUNTED, Coverage, Decision, decisions_in
from kvproof.spec.actions import Action

_PLACES = np.arange(PLANES, dtype=np.int64)


def _decisions(rules: Mapping[str, Action]) -> list[tuple[Decision, ...]]:
    return [decisions_in(action) for action in rules.values()]


def coverage_of(seen: Array, shown_last: Array, actions: Counter[str], rules: Mapping[str, Action]) -> Coverage:
    """The counts of all bits under their names. The last branch of a guard has no bit: it took what the others did not."""
    width = _bits(rules)
    nothing = [0] * width
    counted = _counts(seen[:SHOWN_ROWS], width)
    invariants = {name: sum(of_row[bit] for of_row in counted.values()) for bit, name in enumerate(COUNTED)}
    branches: dict[str, int] = {}
    for row, (name, action) in enumerate(rules.items()):
        if not actions[name]:
            continue
        bit, of_row = len(COUNTED), counted.get(row, nothing)
        for decision in decisions_in(action):
            taken = of_row[bit : bit + len(decision.taken)]
            bit += len(taken)
            for place, count in enumerate([*taken, actions[name] - sum(taken)]):
                branches[decision.key(place)] = count
    return Coverage(actions, *map(_without_zeros, (branches, invariants, *_shown_of(seen, shown_last, rules))))


def _shown_of(seen: Array, shown_last: Array, rules: Mapping[str, Action]) -> list[dict[str, int]]:
    """How often each value was shown, and how often it was not."""
    width, names = 2 * len(SHOWN_BITS), list(rules)
    counted = _counts(seen[SHOWN_ROWS:], width)
    for row, (bits, times, _) in enumerate(shown_last.tolist()):
        if times:
            before = counted.get(row, [0] * width)
            counted[row] = [count + times * (bits >> bit & 1) for bit, count in enumerate(before)]
    return [
        {f"{names[row]}.{name}": of_row[bit] for row, of_row in counted.items() for name, bit in bits.items()}
        for bits in (SHOWN_BITS, NOT_SHOWN_BITS)
    ]


def _counts(seen: Array, width: int) -> dict[int, list[int]]:
    """Of each row that is not empty, the counts of its bits. The planes above hold nothing: most, in a short trace."""
    used = np.flatnonzero(seen.any(axis=1))
    planes = int(np.flatnonzero(seen.any(axis=0)).max(initial=-1)) + 1
    bits = (seen[used, :planes, None] >> np.arange(width)) & 1
    times = (bits << _PLACES[:planes, None]).sum(axis=1)
    return dict(zip(used.tolist(), times.tolist(), strict=True))


def _bits(rules: Mapping[str, Action]) -> int:
    """The most that a row of `seen` has."""
    return len(COUNTED) + max([sum([len(d.taken) for d in of_one]) for of_one in _decisions(rules)])


def write_coverage(seen: Array, coverage: Coverage, rules: Mapping[str, Action]) -> None:
    """The counts as bits. Which action checked an invariant is not told apart in a report: the first row gets all."""
    seen[:] = 0
    for bit, name in enumerate(COUNTED):
        seen[0] |= _bit_by_bit(coverage.invariants[name]) << bit
    for row, decisions in zip(seen, _decisions(rules), strict=False):
        bit = len(COUNTED)
        for decision in decisions:
            for place in range(len(decision.taken)):
                row |= _bit_by_bit(coverage.branches[decision.key(place)]) << bit
                bit += 1
    rows = {name: row for row, name in enumerate(rules, SHOWN_ROWS)}
    for bits, counts in ((SHOWN_BITS, coverage.shown), (NOT_SHOWN_BITS, coverage.not_shown)):
        for key, count in counts.items():
            action, _, name = key.partition(".")
            if action in rows and name in bits:
                seen[rows[action]] |= _bit_by_bit(count) << bits[name]


def _bit_by_bit(count: int) -> Array:
    return (count >> _PLACES) & 1


def _without_zeros(counts: Mapping[str, int]) -> Counter[str]:
    return Counter({name: count for name, count in counts.items() if count})
