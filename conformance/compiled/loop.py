"""The loop over events in arrays: follow one after the other as long as they are clean.

Compiled together with `book.py`, `places.py`, `pages.py` and what is printed from the specification (`rules.py`,
`weighing.py`): `judge_ledger`, `weigh_invariants`, `weigh_changed`, `report_ledger`, `terms_are_right`. An event that is not
clean leaves everything as it was before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.conformance.compiled.book import length_of, totals, undo
from kvproof.conformance.compiled.layout import (
    ABORT,
    ABSENT,
    ACTION,
    ADMITTED,
    ALL_JUDGED,
    ALLOC,
    ARENA_TOP,
    ARRIVE,
    BEHIND,
    CHECK,
    CHECK_RULE,
    CHECKS,
    CREATE,
    DIRTY,
    DIRTY_LEDGERS,
    ELSEWHERE,
    ENDED_IN,
    EVENTS,
    EVICT,
    EVICT_RULE,
    EVICTS,
    EXERCISED,
    FINISH,
    FOLLOWED,
    FREE_COUNT,
    FREE_LIST,
    FREE_LIST_SEEN,
    FREED,
    JOURNAL,
    KINDS_WITH_ROW,
    LEDGER_OF,
    LENGTH,
    MARK,
    NEEDS_ROOM,
    NO_ROW,
    NOT_CLEAN,
    ODD,
    OWN_LEDGER,
    OWNER,
    PAGES_MOVED,
    ROW,
    ROW_SEEN,
    RULE_BITS,
    SEEN_BY_CHECK,
    SEEN_BY_EVICTION,
    SEEN_BY_WINDOW_EVICTION,
    SESSION,
    SESSION_HELD,
    SHARED,
    TERMS_SEEN,
    TOUCHED,
    TURN,
    WINDOW_ALLOC,
    WINDOW_FREE_COUNT,
    WINDOW_FREE_LIST,
    WINDOW_FREE_LIST_SEEN,
    WINDOW_FREED,
    WINDOW_MARK,
    Array,
    EventArrays,
    StateArrays,
)
from kvproof.conformance.compiled.pages import evict_pages, lists_what_is_free, move_pages

if TYPE_CHECKING:

    def judge_ledger(
        kind: int, is_another: bool, old: Array, new: Array, table: Array, event: int, settings: Array, moves: Array
    ) -> int: ...
    def weigh_invariants(old: Array, settings: Array) -> tuple[int, int]: ...
    def weigh_changed(rule: int, before: int, new: Array, settings: Array) -> tuple[int, int]: ...
    def report_ledger(old: Array, settings: Array, report: Array) -> None: ...
    def terms_are_right(table: Array, event: int, counts: Array, settings: Array) -> bool: ...


def bring_terms_up_to_date(state: StateArrays) -> None:
    """The sums of what the ledgers report: those that changed since the last check are counted anew."""
    ledgers, counts, reports, report = state.ledgers, state.counts, state.reports, state.report
    for n in range(counts[DIRTY_LEDGERS]):
        ledger = state.dirty[n]
        state.tables[ledger, DIRTY] = 0
        in_use = False
        for place in range(ledgers.shape[1]):
            in_use = in_use or ledgers[ledger, place] != 0
        if in_use:
            report_ledger(ledgers[ledger], state.settings, report)
        else:
            for term in range(4):
                report[term] = 0
        for term in range(4):
            counts[SESSION_HELD + term] += report[term] - reports[ledger, term]
            reports[ledger, term] = report[term]
    counts[DIRTY_LEDGERS] = 0


def check_memory(event: int, events: EventArrays, state: StateArrays) -> bool:
    """The terms that the implementation read, and its free lists, are the true ones."""
    table, settings, counts = events.table, state.settings, state.counts
    if table[TERMS_SEEN, event] == ABSENT:
        return True
    bring_terms_up_to_date(state)
    if not terms_are_right(table, event, counts, settings):
        return False
    if table[FREE_LIST_SEEN, event] != ABSENT and not lists_what_is_free(
        events, FREE_LIST, event, state.pages, OWNER, MARK, counts[FREE_COUNT]
    ):
        return False
    return (
        settings[FOLLOWED] == 0
        or table[WINDOW_FREE_LIST_SEEN, event] == ABSENT
        or lists_what_is_free(
            events, WINDOW_FREE_LIST, event, state.windows, BEHIND, WINDOW_MARK, counts[WINDOW_FREE_COUNT]
        )
    )


def count_seen(seen: Array, rule: int, bits: int) -> None:
    """Add one to the count of each bit. Place n of a row holds bit n of all counts, so they are added at once."""
    place = 0
    while bits != 0:
        carried = seen[rule, place] & bits
        seen[rule, place] ^= bits
        bits = carried
        place += 1


def judge_events(first: int, last: int, events: EventArrays, state: StateArrays) -> tuple[int, int]:
    """Judge events first to last - 1; why it stopped, and the event at which it did."""
    table, settings, counts, journal, moves = events.table, state.settings, state.counts, state.journal, state.moves
    tables, turns, new, seen = state.tables, state.turns, state.new, state.seen
    for event in range(first, last):
        kind = int(table[ACTION, event])
        if table[ODD, event] == 1:
            return NOT_CLEAN, event
        n_alloc = length_of(events, ALLOC, event)
        n_freed = length_of(events, FREED, event)
        n_window_alloc = length_of(events, WINDOW_ALLOC, event)
        n_window_freed = length_of(events, WINDOW_FREED, event)
        n_moved = n_alloc + n_freed + n_window_alloc + n_window_freed
        counts[JOURNAL] = 0
        if kind == EVICT:
            if 4 * (n_freed + n_window_freed) + 64 > journal.shape[0]:
                return NEEDS_ROOM, event
            before = totals(counts)
            if not evict_pages(event, events, state):
                undo(state, 0, before)
                return NOT_CLEAN, event
            counts[EVICTS] += 1
            if n_freed > 0:
                count_seen(seen, EVICT_RULE, SEEN_BY_EVICTION)
            if n_window_freed > 0 and settings[FOLLOWED] != 0:
                count_seen(seen, EVICT_RULE, SEEN_BY_WINDOW_EVICTION)
        elif kind == CHECK:
            if not check_memory(event, events, state):
                return NOT_CLEAN, event
            counts[CHECKS] += 1
            if table[TERMS_SEEN, event] != ABSENT:
                count_seen(seen, CHECK_RULE, SEEN_BY_CHECK)
        else:
            session, turn = int(table[SESSION, event]), int(table[TURN, event])
            is_another = False
            if session >= 0:
                ledger = session
                is_another = kind != CREATE and turn >= 0 and turns[turn, ELSEWHERE] != 0
            elif turn < 0:
                return NOT_CLEAN, event
            elif kind == ARRIVE or turns[turn, LEDGER_OF] == 0:
                ledger = int(turns[turn, OWN_LEDGER])
            else:
                ledger = int(turns[turn, LEDGER_OF]) - 1
            old = state.ledgers[ledger]
            for place in range(new.shape[0]):
                new[place] = old[place]
            judged = judge_ledger(kind, is_another, old, new, table, event, settings, moves)
            if judged < 0:
                return NOT_CLEAN, event
            rule = judged & ((1 << RULE_BITS) - 1)
            broken, exercised = weigh_changed(rule, tables[ledger, EXERCISED], new, settings)
            if broken != 0 and broken & ~weigh_invariants(old, settings)[0] != 0:
                return NOT_CLEAN, event
            with_row = (KINDS_WITH_ROW >> kind) & 1 == 1
            if n_moved > 0 or moves[0, 0] != 0:
                at_most = n_moved + 2 * (tables[ledger, LENGTH] + length_of(events, SHARED, event))
                if 12 * at_most + 64 > journal.shape[0] or counts[ARENA_TOP] + 4 * at_most + 64 > state.arena.shape[0]:
                    return NEEDS_ROOM, event
                before = totals(counts)
                if not move_pages(ledger, with_row, event, events, state):
                    undo(state, ledger, before)
                    return NOT_CLEAN, event
            elif with_row and tables[ledger, ROW] != NO_ROW and table[ROW_SEEN, event] != tables[ledger, ROW]:
                return NOT_CLEAN, event
            for place in range(new.shape[0]):
                old[place] = new[place]
            tables[ledger, EXERCISED] = exercised
            state.rules[rule] += 1
            count_seen(seen, rule, (judged >> RULE_BITS) | exercised)
            tables[ledger, TOUCHED] = counts[EVENTS] + 1
            if tables[ledger, DIRTY] == 0:
                tables[ledger, DIRTY] = 1
                state.dirty[counts[DIRTY_LEDGERS]] = ledger
                counts[DIRTY_LEDGERS] += 1
            if kind in (FINISH, ABORT):
                tables[ledger, ENDED_IN] = events.steps[event]
            if turn >= 0:
                if session < 0 or (turns[turn, LEDGER_OF] == 0 and table[ADMITTED, event] != 0):
                    turns[turn, LEDGER_OF] = ledger + 1
                if kind == CREATE:
                    turns[turn, ELSEWHERE] = 0
                if kind in (FINISH, ABORT) or table[ADMITTED, event] == 0:
                    turns[turn, ELSEWHERE] = 1
        counts[EVENTS] += 1
        counts[PAGES_MOVED] += n_moved
    return ALL_JUDGED, last
