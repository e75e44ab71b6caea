"""The moves of one event on page ids: those of a rule's effects, those of an eviction, and the free lists of a check.

Compiled together with `book.py`; `still_needs` is printed from the specification (`rules.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.conformance.compiled.book import (
    clear_window,
    free_page,
    holds_page,
    length_of,
    lists_what_is_marked,
    make_room,
    name_window,
    note,
    pin,
    release_block,
    release_window,
    set_owner,
    set_window,
    write_out,
)
from kvproof.conformance.compiled.layout import (
    ALLOC,
    BEHIND,
    DROP_ROW,
    FOLLOWED,
    FREE_PAGES,
    FREE_WINDOW,
    FREED,
    INSERT,
    JOURNAL_ARENA,
    JOURNAL_WINDOWS,
    LENGTH,
    MARK,
    NO_ROW,
    OWNED_BY_NONE,
    OWNED_BY_TREE,
    OWNED_FROM,
    OWNER,
    PINS,
    ROW,
    ROW_SEEN,
    SCRATCH_ALLOC,
    SCRATCH_SHARED,
    SCRATCH_WINDOW,
    SHARE,
    SHARED,
    START,
    TAKE,
    TAKE_ROW,
    TREE_END,
    WINDOW_ALLOC,
    WINDOW_FREED,
    WINDOW_MARK,
    WINDOW_OF,
    Array,
    EventArrays,
    StateArrays,
)

if TYPE_CHECKING:

    def still_needs(old: Array, position: int, settings: Array) -> bool: ...


def move_pages(ledger: int, with_row: bool, event: int, events: EventArrays, state: StateArrays) -> bool:
    """Make the moves of a rule on the page ids of an event; False if they are not the ones that it lists."""
    table, settings, moves, tables, arena = events.table, state.settings, state.moves, state.tables, state.arena
    pages, windows, users, counts, journal = state.pages, state.windows, state.users, state.counts, state.journal
    scratch = state.scratch
    followed = settings[FOLLOWED] != 0
    row, length, tree_end = tables[ledger, ROW], tables[ledger, LENGTH], tables[ledger, TREE_END]
    row_before = row
    n_alloc = length_of(events, ALLOC, event)
    n_window = length_of(events, WINDOW_ALLOC, event) if followed else 0
    n_shared = length_of(events, SHARED, event)
    if max(n_alloc, n_window, n_shared) > scratch.shape[1]:
        return False
    fresh, fresh_window, shared = scratch[SCRATCH_ALLOC], scratch[SCRATCH_WINDOW], scratch[SCRATCH_SHARED]
    write_out(events, ALLOC, event, fresh)
    if followed:
        write_out(events, WINDOW_ALLOC, event, fresh_window)
    write_out(events, SHARED, event, shared)
    taken, freed, window_freed = 0, 0, 0
    n = 0
    while moves[n, 0] != 0:
        move, first, last = moves[n, 0], moves[n, 1], moves[n, 2]
        if move == TAKE_ROW:
            row = int(table[ROW_SEEN, event])
            if row_before != NO_ROW or row < 0 or row >= users.shape[0] or users[row] != 0:
                return False
            length, tree_end = 0, 0
        elif row == NO_ROW:
            return False
        elif move == SHARE:
            if first < 0 or first > n_shared or length != 0:
                return False
            make_room(tables, arena, counts, ledger, 0, first)
            for position in range(first):
                page = int(shared[position])
                if page < 1 or page >= pages.shape[0] or pages[page, OWNER] != OWNED_BY_TREE:
                    return False
                arena[tables[ledger, START] + position] = page
                pin(pages, journal, counts, page, 1)
            length, tree_end = first, first
        elif move == TAKE:
            if first != length or taken + (last - first) > n_alloc or (followed and taken + (last - first) > n_window):
                return False
            make_room(tables, arena, counts, ledger, length, last)
            for position in range(first, last):
                page = int(fresh[taken])
                if page < 1 or page >= pages.shape[0]:
                    return False
                if pages[page, OWNER] != OWNED_BY_NONE or pages[page, WINDOW_OF] != 0:
                    return False
                set_owner(pages, journal, counts, page, ledger + OWNED_FROM)
                if followed:
                    window = int(fresh_window[taken])
                    if window < 1 or window >= windows.shape[0] or windows[window, BEHIND] != 0:
                        return False
                    name_window(pages, windows, journal, counts, page, window)
                arena[tables[ledger, START] + position] = page
                taken += 1
            length = last
        elif move == FREE_PAGES:
            if last != length or first < tree_end:
                return False
            for position in range(first, last):
                page = int(arena[tables[ledger, START] + position])
                free_page(pages, journal, counts, page)
                window_freed += release_window(pages, windows, journal, counts, page)
                freed += 1
            length = first
        elif move == FREE_WINDOW:
            if first < 0 or last > length:
                return False
            for position in range(first, last):
                page = int(arena[tables[ledger, START] + position])
                window_freed += release_window(pages, windows, journal, counts, page)
        elif move == INSERT:
            duplicates, freed_from = last, moves[n, 3]
            if first < tree_end or first > length:
                return False
            for position in range(tree_end, first):
                place = tables[ledger, START] + position
                page = int(arena[place])
                if position >= duplicates:
                    set_owner(pages, journal, counts, page, OWNED_BY_TREE)
                elif position < freed_from:
                    return False
                else:
                    free_page(pages, journal, counts, page)
                    freed += 1
                    if position >= n_shared:
                        window_freed += release_window(pages, windows, journal, counts, page)
                    else:
                        kept = int(shared[position])
                        if kept < 1 or kept >= pages.shape[0] or pages[kept, OWNER] != OWNED_BY_TREE:
                            return False
                        window = int(pages[page, WINDOW_OF])
                        handed_on = (
                            window != 0
                            and pages[kept, WINDOW_OF] == 0
                            and not holds_page(events, WINDOW_FREED, event, window)
                        )
                        if handed_on:
                            clear_window(pages, windows, journal, counts, page)
                            name_window(pages, windows, journal, counts, kept, window)
                        else:
                            window_freed += release_window(pages, windows, journal, counts, page)
                        note(journal, counts, JOURNAL_ARENA, place, page)
                        arena[place] = kept
                        page = kept
                pin(pages, journal, counts, page, 1)
            tree_end = first
        elif move == DROP_ROW:
            for position in range(min(tree_end, length)):
                pin(pages, journal, counts, int(arena[tables[ledger, START] + position]), -1)
            row, length, tree_end = NO_ROW, 0, 0
        n += 1
    if taken != n_alloc or (followed and taken != n_window):
        return False
    if with_row and row != NO_ROW and table[ROW_SEEN, event] != row:
        return False
    if not lists_what_is_marked(events, FREED, event, pages, MARK, MARK, freed, journal, counts):
        return False
    if followed:
        noted_as = JOURNAL_WINDOWS + WINDOW_MARK
        if not lists_what_is_marked(
            events, WINDOW_FREED, event, windows, WINDOW_MARK, noted_as, window_freed, journal, counts
        ):
            return False
    if row_before != row:
        if row_before != NO_ROW:
            users[row_before] = 0
        if row != NO_ROW:
            users[row] = ledger + 1
    if row == NO_ROW:
        release_block(tables, arena, counts, ledger)
    tables[ledger, ROW], tables[ledger, LENGTH], tables[ledger, TREE_END] = row, length, tree_end
    return True


def is_read(page: int, state: StateArrays) -> bool:
    """Whether the window of some row's next token reaches a page of the row's protected prefix."""
    tables, arena, users = state.tables, state.arena, state.users
    for row in range(users.shape[0]):
        ledger = users[row] - 1
        if ledger >= 0:
            for position in range(min(tables[ledger, TREE_END], tables[ledger, LENGTH])):
                if arena[tables[ledger, START] + position] == page:
                    if still_needs(state.ledgers[ledger], position, state.settings):
                        return True
                    break
    return False


def evict_pages(event: int, events: EventArrays, state: StateArrays) -> bool:
    """The tree frees pages that no row's protected prefix holds, and window pages that no row's window reaches."""
    pages, windows, counts, journal = state.pages, state.windows, state.counts, state.journal
    followed = state.settings[FOLLOWED] != 0
    gone = 0
    for run in range(events.begins[FREED, event], events.ends[FREED, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= pages.shape[0] or pages[page, OWNER] != OWNED_BY_TREE or pages[page, PINS] > 0:
                return False
            set_owner(pages, journal, counts, page, OWNED_BY_NONE)
            if followed:
                gone += release_window(pages, windows, journal, counts, page)
    if not followed:
        return True
    for run in range(events.begins[WINDOW_FREED, event], events.ends[WINDOW_FREED, event]):
        for window in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if window < 1 or window >= windows.shape[0]:
                return False
            if windows[window, WINDOW_MARK] > 0:
                set_window(windows, journal, counts, window, WINDOW_MARK, 0)
                gone -= 1
                continue
            page = int(windows[window, BEHIND])
            if page == 0 or pages[page, OWNER] != OWNED_BY_TREE:
                return False
            if pages[page, PINS] > 0 and is_read(page, state):
                return False
            clear_window(pages, windows, journal, counts, page)
    return gone == 0


def lists_what_is_free(
    events: EventArrays, which: int, event: int, owned: Array, what: int, mark: int, free: int
) -> bool:
    """Whether a free list, as a set, is the set of pages that nobody owns (`free` of them)."""
    right = True
    distinct = 0
    for run in range(events.begins[which, event], events.ends[which, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= owned.shape[0] or owned[page, what] != 0:
                right = False
                break
            if owned[page, mark] == 0:
                owned[page, mark] = 1
                distinct += 1
    for run in range(events.begins[which, event], events.ends[which, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= owned.shape[0]:
                break
            owned[page, mark] = 0
    return right and distinct == free
