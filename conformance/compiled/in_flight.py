"""The batch that was launched last, over arrays: `replay/batch_in_flight.py` does it event by event.

Compiled together with the loop.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.conformance.replay.batch_in_flight import may_begin
from kvproof.spec.batch import may_be_given


def number_of(event: int, counts: Array) -> int:
    return counts[at.FIRST_SEQ] + event + 1


def begin_of(event: int, events: EventArrays, counts: Array) -> int:
    """The first launch of the batch that this launch belongs to."""
    step = events.steps[event]
    if counts[at.BATCH_FIRST] > 0 and step != at.ABSENT and step == counts[at.BATCH_STEP]:
        return counts[at.BATCH_FIRST]
    return number_of(event, counts)


def may_be_launched(turn: int, event: int, events: EventArrays, state: StateArrays) -> bool:
    """Whether the step of a launch agrees with those before it. Where one has no step, the interpreted checker forgets whose
    results are awaited."""
    step, counts = events.steps[event], state.counts
    if step == at.ABSENT:
        return counts[at.AWAITED] + counts[at.AWAITED_BEFORE] == 0
    if counts[at.BATCH_FIRST] == 0 or counts[at.BATCH_STEP] == at.ABSENT:
        return True
    if step == counts[at.BATCH_STEP]:
        return state.settings[at.OVERLAP] == 0 or state.turns[turn, at.LAUNCHED] < counts[at.BATCH_FIRST]
    return step > counts[at.BATCH_STEP] and may_begin(
        state.settings[at.OVERLAP] != 0, counts[at.AWAITED_BEFORE], counts[at.AWAITED]
    )


def runs_twice(turn: int, state: StateArrays) -> bool:
    """Of a result: whether it is the second one of its turn in one step. Without overlap only a result says that a step ran."""
    return state.settings[at.OVERLAP] == 0 and 0 < state.counts[at.BATCH_FIRST] <= state.turns[turn, at.LAUNCHED_BEFORE]


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
        windows = state.window_given_up
        for run in range(events.begins[at.WINDOW_ALLOC, event], events.ends[at.WINDOW_ALLOC, event]):
            first = max(int(events.runs[run, 0]), 0)
            for window in range(first, min(first + int(events.runs[run, 1]), windows.shape[0])):
                if windows[window] >= max(counts[at.BATCH_BEFORE], 1) and not may_be_given(windows[window], batch):
                    return -1
    return taken_over


def launch(turn: int, gives_a_token: bool, event: int, events: EventArrays, state: StateArrays) -> None:
    """The launch is clean: the turn is in the batch from here on."""
    counts, turns, number = state.counts, state.turns, number_of(event, state.counts)
    if begin_of(event, events, counts) == number:
        counts[at.BATCH_BEFORE], counts[at.BATCH_FIRST] = counts[at.BATCH_FIRST], number
        counts[at.BATCH_STEP] = events.steps[event]
        counts[at.AWAITED_BEFORE] += counts[at.AWAITED]
        counts[at.AWAITED] = 0
    await_no_more(turn, state)
    turns[turn, at.LAUNCHED_BEFORE], turns[turn, at.LAUNCHED] = turns[turn, at.LAUNCHED], number
    if gives_a_token and events.steps[event] != at.ABSENT:
        turns[turn, at.IS_AWAITED] = 1
        counts[at.AWAITED] += 1


def leave(turn: int, state: StateArrays) -> None:
    """The turn leaves. Without overlap a step that was prepared for it does not run."""
    await_no_more(turn, state)
    if state.settings[at.OVERLAP] == 0:
        state.turns[turn, at.LAUNCHED], state.turns[turn, at.LAUNCHED_BEFORE] = 0, 0


def await_no_more(turn: int, state: StateArrays) -> None:
    """All results of the turn are known, or it leaves, or it is launched again."""
    counts, turns = state.counts, state.turns
    if turns[turn, at.IS_AWAITED] != 0:
        turns[turn, at.IS_AWAITED] = 0
        is_of_the_batch = turns[turn, at.LAUNCHED] >= counts[at.BATCH_FIRST]
        counts[at.AWAITED if is_of_the_batch else at.AWAITED_BEFORE] -= 1


def use(row: int, taken_over: int, event: int, events: EventArrays, state: StateArrays) -> None:
    """The launch reads and writes the row, and nobody else the pages that it took."""
    if taken_over > 0:
        for run in range(events.begins[at.ALLOC, event], events.ends[at.ALLOC, event]):
            for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
                state.given_up[page] = 0
    if state.counts[at.LAST_GIVEN_UP] > 0 and state.settings[at.FOLLOWED] != 0:
        for run in range(events.begins[at.WINDOW_ALLOC, event], events.ends[at.WINDOW_ALLOC, event]):
            for window in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
                state.window_given_up[window] = 0
    state.launched[row] = number_of(event, state.counts)


def let_go(ledger: int, event: int, events: EventArrays, state: StateArrays) -> None:
    """The turn on this row leaves, or gives some of them back: from here on others may be given its pages."""
    counts, tables, arena, windows = state.counts, state.tables, state.arena, state.window_given_up
    row = tables[ledger, at.ROW]
    if counts[at.BATCH_FIRST] == 0 or state.launched[row] < counts[at.BATCH_FIRST]:
        return
    number, start = number_of(event, counts), tables[ledger, at.START]
    counts[at.LAST_GIVEN_UP] = number
    if events.table[at.ACTION, event] == at.A_WINDOW:
        for run in range(events.begins[at.WINDOW_FREED, event], events.ends[at.WINDOW_FREED, event]):
            first = max(int(events.runs[run, 0]), 0)
            for window in range(first, min(first + int(events.runs[run, 1]), windows.shape[0])):
                windows[window] = number
        return
    for place in range(start, start + tables[ledger, at.LENGTH]):
        state.given_up[arena[place]] = number
        if state.pages[at.WINDOW_OF, arena[place]] != 0:
            windows[state.pages[at.WINDOW_OF, arena[place]]] = number
