"""The batch that was launched last, over arrays: `replay/batch_in_flight.py` does it event by event.

Compiled together with the loop, which asks only with overlap.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.spec.batch import may_be_given


def number_of(event: int, counts: Array) -> int:
    return counts[at.FIRST_SEQ] + event + 1


def begin_of(event: int, events: EventArrays, counts: Array) -> int:
    """The first launch of the batch that this launch belongs to."""
    step = events.steps[event]
    if counts[at.BATCH_FIRST] > 0 and step != at.ABSENT and step == counts[at.BATCH_STEP]:
        return counts[at.BATCH_FIRST]
    return number_of(event, counts)


def reuse(row: int, event: int, events: EventArrays, state: StateArrays) -> int:
    """Of a launch: how many pages it takes that the batch before it may still use; -1 if its own batch uses what it is given."""
    counts, given_up = state.counts, state.given_up
    batch = begin_of(event, events, counts)
    if 0 <= row < state.launched.shape[0] and not may_be_given(state.launched[row], batch):
        return -1
    taken_over = 0
    if counts[at.LAST_GIVEN_UP] >= max(counts[at.BATCH_BEFORE], 1):
        for run in range(events.begins[at.ALLOC, event], events.ends[at.ALLOC, event]):
            first = max(int(events.runs[run, 0]), 0)
            for page in range(first, min(first + int(events.runs[run, 1]), given_up.shape[0])):
                if given_up[page] >= max(counts[at.BATCH_BEFORE], 1):
                    taken_over += 1
                    if not may_be_given(given_up[page], batch):
                        return -1
    return taken_over


def launch(row: int, taken_over: int, event: int, events: EventArrays, state: StateArrays) -> None:
    """The launch is clean: its batch uses the row, and nobody else the pages that it took."""
    counts, number = state.counts, number_of(event, state.counts)
    if taken_over > 0:
        for run in range(events.begins[at.ALLOC, event], events.ends[at.ALLOC, event]):
            for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
                state.given_up[page] = 0
    if begin_of(event, events, counts) == number:
        counts[at.BATCH_BEFORE], counts[at.BATCH_FIRST] = counts[at.BATCH_FIRST], number
        counts[at.BATCH_STEP] = events.steps[event]
    state.launched[row] = number


def let_go(ledger: int, event: int, state: StateArrays) -> None:
    """The turn on this row leaves, or gives its duplicates back: from here on others may be given its pages."""
    counts, tables, arena = state.counts, state.tables, state.arena
    row = tables[ledger, at.ROW]
    if counts[at.BATCH_FIRST] > 0 and state.launched[row] >= counts[at.BATCH_FIRST]:
        number, start = number_of(event, counts), tables[ledger, at.START]
        for place in range(start, start + tables[ledger, at.LENGTH]):
            state.given_up[arena[place]] = number
        counts[at.LAST_GIVEN_UP] = number
