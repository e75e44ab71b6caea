"""What stands still, over arrays: `replay/liveness.py` and `replay/passes.py` do it ledger by ledger.

Compiled together with the loop, which asks where a decode begins a pass. A check that says that nothing was found to run is
left to the interpreted checker, as is every finding.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.layout import EventArrays, StateArrays
from kvproof.conformance.replay.liveness import has_room


def begins_a_pass(kind: int, event: int, events: EventArrays, state: StateArrays) -> bool:
    step = events.steps[event]
    return kind == at.DECODE and step != at.ABSENT and step != state.counts[at.PASS_STEP]


def stands_still(decoding: int, state: StateArrays) -> bool:
    """Whether any ledger but the one that decodes stands still, in the pass that begins."""
    counts, settings, ledgers, tables = state.counts, state.settings, state.ledgers, state.tables
    passes, patience = counts[at.PASSES] + 1, settings[at.PATIENCE]
    if passes < max(counts[at.NEXT_LOOK], patience):
        return False
    widest = -(-settings[at.ROW_WIDTH] // settings[at.PAGE_SIZE])
    reserved, rows, kept_out = at.SPARE, 0, 0
    for ledger in range(ledgers.shape[0]):
        phase, stood = ledgers[ledger, at.PHASE], passes - tables[ledger, at.LAST_PASS]
        length = 0
        if tables[ledger, at.ROW] != at.NO_ROW:
            length = tables[ledger, at.LENGTH]
            rows += 1
        if phase >= at.LIVE_FROM:
            reserved += widest - length
        if phase == at.NO_TURN:
            if ledgers[ledger, at.CLOSING] != 0 and stood >= settings[at.CLOSE_PATIENCE]:
                return True
        elif ledger != decoding and stood >= patience:
            if phase == at.DECODING:
                return True
            kept_out += 1
    if kept_out == 0 or counts[at.BARREN] + 1 < patience:
        return False
    obtainable = counts[at.FREE_COUNT] + counts[at.TREE_COUNT] - counts[at.PROTECTED_COUNT]
    if settings[at.WINDOW] != 0 and settings[at.FOLLOWED] == 0:
        return False
    if settings[at.FOLLOWED] != 0:
        pool_pages, window_pages = state.pages.shape[1] - 1, state.windows.shape[1] - 1
        in_use = pool_pages - obtainable
        obtainable = min(obtainable, counts[at.WINDOW_FREE_COUNT], window_pages - in_use)
    waits, is_held_up = False, False
    for ledger in range(ledgers.shape[0]):
        phase, stood = ledgers[ledger, at.PHASE], passes - tables[ledger, at.LAST_PASS]
        if phase in (at.NO_TURN, at.DECODING):
            continue
        if phase != at.IN_THE_QUEUE:  # a turn in its prefill: what it may want is reserved already
            if stood >= patience and has_room(reserved, obtainable):
                return True
            continue
        wanted = widest - (tables[ledger, at.LENGTH] if tables[ledger, at.ROW] != at.NO_ROW else 0)
        has_a_row = ledgers[ledger, at.SLOT_HELD] != 0 or rows < settings[at.ROWS]
        if not has_a_row or not has_room(wanted + reserved, obtainable):
            is_held_up = True
        elif stood >= patience:
            waits = True
    return waits and not is_held_up


def goes_round(kind: int, ledger: int, state: StateArrays) -> bool:
    """Whether the event is one retract too many of a turn that got no token."""
    return kind == at.RETRACT and state.tables[ledger, at.RETRACTED] >= state.settings[at.RETRACT_PATIENCE]


def ask_abort(event: int, events: EventArrays, state: StateArrays) -> bool:
    """Somebody wants a turn aborted; whether the turn is one that is not over."""
    session, turn, turns = int(events.table[at.SESSION, event]), int(events.table[at.TURN, event]), state.turns
    if turn < 0 or turns[turn, at.LEDGER_OF] == 0:
        return False
    ledger = int(turns[turn, at.LEDGER_OF]) - 1
    if session >= 0 and (ledger != session or turns[turn, at.ELSEWHERE] != 0):
        return False
    if state.ledgers[ledger, at.PHASE] == at.NO_TURN:
        return False
    turns[turn, at.ASKED] = max(turns[turn, at.ASKED], 1)
    return True


def runs_on(kind: int, turn: int, state: StateArrays) -> bool:
    """Whether the event is one step too many of a turn whose abort was asked for."""
    asked = state.turns[turn, at.ASKED] if turn >= 0 else 0
    return asked > state.settings[at.ABORT_PATIENCE] and (at.KINDS_THAT_GIVE_A_STEP >> kind) & 1 == 1


def goes_on(
    kind: int, ledger: int, begins: bool, is_late: bool, event: int, events: EventArrays, state: StateArrays
) -> None:
    """The event is clean, and of the ledger's own turn. `is_late`: a result that is dropped."""
    counts = state.counts
    if begins:
        counts[at.PASSES] += 1
        counts[at.BARREN] += 1
        counts[at.PASS_STEP] = events.steps[event]
        if counts[at.PASSES] >= counts[at.NEXT_LOOK]:
            counts[at.NEXT_LOOK] = counts[at.PASSES] + 1 + (counts[at.EVENTS] >> at.LOOKS_OF_EVENTS)
    if (at.KINDS_THAT_ADMIT_OR_GIVE_BACK >> kind) & 1 == 1:
        counts[at.BARREN] = 0
    if (at.KINDS_THAT_BRING_NOTHING_ON >> kind) & 1 == 0:
        state.tables[ledger, at.LAST_PASS] = counts[at.PASSES]
    if kind == at.RETRACT:
        state.tables[ledger, at.RETRACTED] += 1
    elif (at.KINDS_THAT_GET_ON >> kind) & 1 == 1 and not is_late:
        state.tables[ledger, at.RETRACTED] = 0
