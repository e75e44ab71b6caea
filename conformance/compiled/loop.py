"""The loop over events in arrays: follow one after the other as long as they are clean.

Compiled together with `book.py`, `pages.py` and the functions that are printed from the specification (`rules.py`):
`judge_ledger`, `broken_invariants`, `report_ledger`, `terms_are_right`. An event that is not clean leaves everything as it
was before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.conformance.compiled.book import (
    Array,
    length_of,
    totals,
    undo,
)
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
    CHECKS,
    CREATE,
    DIRTY,
    DIRTY_LEDGERS,
    ELSEWHERE,
    ENDED_IN,
    EVENTS,
    EVICT,
    EVICTS,
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
)
from kvproof.conformance.compiled.pages import evict_pages, lists_what_is_free, move_pages

if TYPE_CHECKING:

    def judge_ledger(
        kind: int, is_another: bool, old: Array, new: Array, table: Array, event: int, settings: Array, moves: Array
    ) -> int: ...
    def broken_invariants(old: Array, settings: Array) -> int: ...
    def report_ledger(old: Array, settings: Array, report: Array) -> None: ...
    def terms_are_right(table: Array, event: int, counts: Array, settings: Array) -> bool: ...


def bring_terms_up_to_date(
    settings: Array, ledgers: Array, tables: Array, counts: Array, dirty: Array, reports: Array, report: Array
) -> None:
    """The sums of what the ledgers report: those that changed since the last check are counted anew."""
    for n in range(counts[DIRTY_LEDGERS]):
        ledger = dirty[n]
        tables[ledger, DIRTY] = 0
        in_use = False
        for place in range(ledgers.shape[1]):
            in_use = in_use or ledgers[ledger, place] != 0
        if in_use:
            report_ledger(ledgers[ledger], settings, report)
        else:
            report[:] = 0
        for term in range(4):
            counts[SESSION_HELD + term] += report[term] - reports[ledger, term]
            reports[ledger, term] = report[term]
    counts[DIRTY_LEDGERS] = 0


def check_memory(
    table: Array,
    event: int,
    offsets: Array,
    runs: Array,
    settings: Array,
    ledgers: Array,
    tables: Array,
    pages: Array,
    windows: Array,
    counts: Array,
    dirty: Array,
    reports: Array,
    report: Array,
) -> bool:
    """The terms that the implementation read, and its free lists, are the true ones."""
    if table[TERMS_SEEN, event] == ABSENT:
        return True
    bring_terms_up_to_date(settings, ledgers, tables, counts, dirty, reports, report)
    if not terms_are_right(table, event, counts, settings):
        return False
    if table[FREE_LIST_SEEN, event] != ABSENT and not lists_what_is_free(
        offsets, runs, FREE_LIST, event, pages, OWNER, MARK, counts[FREE_COUNT]
    ):
        return False
    return (
        settings[FOLLOWED] == 0
        or table[WINDOW_FREE_LIST_SEEN, event] == ABSENT
        or lists_what_is_free(
            offsets, runs, WINDOW_FREE_LIST, event, windows, BEHIND, WINDOW_MARK, counts[WINDOW_FREE_COUNT]
        )
    )


def judge_events(
    first: int,
    last: int,
    table: Array,
    steps: Array,
    offsets: Array,
    runs: Array,
    settings: Array,
    ledgers: Array,
    tables: Array,
    arena: Array,
    pages: Array,
    windows: Array,
    users: Array,
    turns: Array,
    counts: Array,
    rules: Array,
    dirty: Array,
    reports: Array,
    journal: Array,
    scratch: Array,
    new: Array,
    moves: Array,
    report: Array,
) -> tuple[int, int]:
    """Judge events first to last - 1; why it stopped, and the event at which it did."""
    for event in range(first, last):
        kind = int(table[ACTION, event])
        if table[ODD, event] == 1:
            return NOT_CLEAN, event
        n_alloc = length_of(offsets, runs, ALLOC, event)
        n_freed = length_of(offsets, runs, FREED, event)
        n_window_alloc = length_of(offsets, runs, WINDOW_ALLOC, event)
        n_window_freed = length_of(offsets, runs, WINDOW_FREED, event)
        n_moved = n_alloc + n_freed + n_window_alloc + n_window_freed
        counts[JOURNAL] = 0
        if kind == EVICT:
            if 4 * (n_freed + n_window_freed) + 64 > journal.shape[0]:
                return NEEDS_ROOM, event
            before = totals(counts)
            if not evict_pages(
                event, offsets, runs, settings, ledgers, tables, arena, pages, windows, users, counts, journal
            ):
                undo(pages, windows, arena, journal, counts, before)
                return NOT_CLEAN, event
            counts[EVICTS] += 1
        elif kind == CHECK:
            if not check_memory(
                table, event, offsets, runs, settings, ledgers, tables, pages, windows, counts, dirty, reports, report
            ):
                return NOT_CLEAN, event
            counts[CHECKS] += 1
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
            old = ledgers[ledger]
            new[:] = old
            rule = judge_ledger(kind, is_another, old, new, table, event, settings, moves)
            if rule < 0:
                return NOT_CLEAN, event
            broken = broken_invariants(new, settings)
            if broken != 0 and broken & ~broken_invariants(old, settings) != 0:
                return NOT_CLEAN, event
            with_row = (KINDS_WITH_ROW >> kind) & 1 == 1
            if n_moved > 0 or moves[0, 0] != 0:
                at_most = n_moved + 2 * (tables[ledger, LENGTH] + length_of(offsets, runs, SHARED, event))
                if 12 * at_most + 64 > journal.shape[0] or counts[ARENA_TOP] + 4 * at_most + 64 > arena.shape[0]:
                    return NEEDS_ROOM, event
                before = totals(counts)
                if not move_pages(
                    ledger,
                    with_row,
                    table,
                    event,
                    offsets,
                    runs,
                    settings,
                    moves,
                    tables,
                    arena,
                    pages,
                    windows,
                    users,
                    counts,
                    journal,
                    scratch,
                ):
                    undo(pages, windows, arena, journal, counts, before)
                    return NOT_CLEAN, event
            elif with_row and tables[ledger, ROW] != NO_ROW and table[ROW_SEEN, event] != tables[ledger, ROW]:
                return NOT_CLEAN, event
            old[:] = new
            rules[rule] += 1
            tables[ledger, TOUCHED] = counts[EVENTS] + 1
            if tables[ledger, DIRTY] == 0:
                tables[ledger, DIRTY] = 1
                dirty[counts[DIRTY_LEDGERS]] = ledger
                counts[DIRTY_LEDGERS] += 1
            if kind in (FINISH, ABORT):
                tables[ledger, ENDED_IN] = steps[event]
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
