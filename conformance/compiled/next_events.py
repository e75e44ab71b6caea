"""What can be told of the next events column by column: that becomes vector instructions, over 32-bit numbers without a branch.

Compiled together with the loop.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.layout import EventArrays, StateArrays


def look_at(first: int, last: int, events: EventArrays, state: StateArrays) -> None:
    """Fill the rows of the table that say which values an event shows, and whether it has something that it may not have: by the
    header (`replay/limits.py`; its lists are looked at elsewhere), or of a ledger where it is of none."""
    limits = state.limits
    kinds, kind_bits = events.table[at.ACTION, first:last], events.table[at.KIND_BIT, first:last]
    beyond, shown = events.table[at.BEYOND, first:last], events.table[at.SHOWN_HERE, first:last]
    for n in range(last - first):
        kind_bits[n] = 1 << kinds[n]
        shown[n] = 0
    for place in range(len(at.ROWS_SHOWN)):
        values, bit = events.table[at.ROWS_SHOWN[place], first:last], 1 << place
        for n in range(last - first):
            shown[n] |= bit if values[n] != at.ABSENT else 0
    steps = events.steps[first:last]
    for n in range(last - first):
        shown[n] |= at.SHOWS_STEP if steps[n] != at.ABSENT else 0
    for n in range(last - first):
        beyond[n] = (shown[n] & at.BITS_AFTER != 0) & (kind_bits[n] & at.KINDS_OF_A_LEDGER == 0)
    for limit in range(limits.shape[0]):
        values, actions = events.table[limits[limit, 0], first:last], limits[limit, 1]
        lowest, highest = limits[limit, 2], limits[limit, 3]
        for n in range(last - first):
            is_wrong = (kind_bits[n] & actions == 0) | (values[n] < lowest) | (values[n] > highest)
            beyond[n] |= is_wrong & (values[n] != at.ABSENT)
    contraries = state.contraries
    for contrary in range(contraries.shape[0]):
        values, actions = events.table[contraries[contrary, 0], first:last], contraries[contrary, 1]
        lowest, others = contraries[contrary, 2], events.table[contraries[contrary, 3], first:last]
        said = contraries[contrary, 4]
        for n in range(last - first):
            beyond[n] |= (kind_bits[n] & actions != 0) & (values[n] >= lowest) & (others[n] == said)


def concerned(rule: int, shown: int, state: StateArrays) -> int:
    """The invariants that the values are about which an event shows."""
    found = 0
    for place in range(state.about.shape[1]):
        if (shown >> place) & 1 == 1:
            found |= state.about[rule, place]
    return found
