"""The moves of one event on page ids: those of a rule's effects, those of an eviction, and the free lists of a check.

Compiled together with `book.py` and `places.py`; `still_needs` is printed from the specification (`rules.py`).
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.book import (
    clear_window,
    has_prefix_id,
    holds_page,
    is_in_path,
    length_of,
    lists_marked_windows,
    lists_what_goes_back,
    make_room,
    name_window,
    note,
    release_block,
    release_window,
    set_window,
    write_out,
)
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.conformance.compiled.places import (
    evict_run,
    give_back,
    hand_to_tree,
    left_the_tree,
    pin,
    release_windows,
    take_pages,
    take_windows,
)
from kvproof.conformance.compiled.rule_calls import ask
from kvproof.conformance.replay.prefix_tree import may_have_a_copy
from kvproof.conformance.replay.window_book import reaches
from kvproof.spec.tree import may_be_evicted


def share_pages(ledger: int, length: int, event: int, events: EventArrays, state: StateArrays) -> bool:
    """The row begins with pages of the tree: the first `length` that the event lists as shared."""
    tables, arena, pages, counts = state.tables, state.arena, state.pages, state.counts
    shared, settings = state.scratch[at.SCRATCH_SHARED], state.settings
    page_size = settings[at.PAGE_SIZE]
    if length < 0 or length != length_of(events, at.SHARED, event) or tables[ledger, at.LENGTH] != 0:
        return False
    make_room(tables, arena, counts, ledger, 0, length)
    start = tables[ledger, at.START]
    write_out(events, at.SHARED, event, shared)
    before = at.ROOT
    for position in range(length):
        page = int(shared[position])
        if not is_in_tree(page, pages) or not is_in_path(pages, state.journal, counts, page, before):
            return False
        lost_its_window = settings[at.FOLLOWED] != 0 and pages[at.WINDOW_OF, page] == 0
        if lost_its_window and reaches(length * page_size, settings[at.WINDOW], (position + 1) * page_size):
            return False
        arena[start + position] = page
        before = page
    pin(arena, start, 0, length, 1, pages, state.journal, counts)
    told = events.table[at.PREFIX_ID_SEEN, event]
    return has_prefix_id(before, told, length, ledger, state)


def lost_window(ledger: int, end: int, state: StateArrays) -> bool:
    """Whether a page of the row has no window page, and the window of the token at `end` reaches it."""
    settings, window, page_size = state.settings, state.settings[at.WINDOW], state.settings[at.PAGE_SIZE]
    if settings[at.FOLLOWED] == 0:
        return False
    start, last = state.tables[ledger, at.START], min(-(-end // page_size), state.tables[ledger, at.LENGTH])
    for position in range(max(end - window, 0) // page_size, last):
        has_window = state.pages[at.WINDOW_OF, state.arena[start + position]] != 0
        if not has_window and reaches(end, window, (position + 1) * page_size):
            return True
    return False


def is_in_tree(page: int, pages: Array) -> bool:
    return 1 <= page < pages.shape[1] and pages[at.OWNER, page] == at.OWNED_BY_TREE


def take_new_pages(ledger: int, first: int, last: int, taken: int, state: StateArrays) -> bool:
    """The row grows from place `first` to before `last` by the next pages that the event lists as allocated."""
    tables, arena, counts, journal, pages = state.tables, state.arena, state.counts, state.journal, state.pages
    if first < tables[ledger, at.LENGTH]:
        return False  # behind what the row had: pages that it gave up in this event are still written there
    make_room(tables, arena, counts, ledger, first, last)
    start, fresh = tables[ledger, at.START], state.scratch[at.SCRATCH_ALLOC]
    if not take_pages(arena, start, first, last, fresh[taken:], ledger, pages, journal, counts):
        return False
    fresh_window = state.scratch[at.SCRATCH_WINDOW]
    return state.settings[at.FOLLOWED] == 0 or take_windows(
        arena, start, first, last, fresh_window[taken:], pages, state.windows, journal, counts
    )


def give_up_duplicate(
    ledger: int, position: int, before: int, event: int, events: EventArrays, state: StateArrays
) -> int:
    """A page of the row goes back because the tree has its tokens; how many window pages go back with it, -1 if it cannot.

    The tree's page, which continues the page `before`, takes its place in the row if the event lists one. It takes over the
    window page if it has none.
    """
    arena, pages, windows, counts, journal = state.arena, state.pages, state.windows, state.counts, state.journal
    start, shared = state.tables[ledger, at.START], state.scratch[at.SCRATCH_SHARED]
    page = int(arena[start + position])
    if not give_back(arena, start, position, position + 1, ledger, pages, journal, counts):
        return -1
    if position >= length_of(events, at.SHARED, event):
        behind = counts[at.TREE_COUNT] if before == at.ROOT else pages[at.BEHIND_IT, max(before, 0)]
        if before != at.UNKNOWN and not may_have_a_copy(behind, counts[at.UNPLACED_COUNT]):
            return -1
        return release_window(pages, windows, journal, counts, page)
    kept, window = int(shared[position]), int(pages[at.WINDOW_OF, page])
    if not is_in_tree(kept, pages) or not is_in_path(pages, journal, counts, kept, before):
        return -1
    released = 0
    if window != 0 and pages[at.WINDOW_OF, kept] == 0 and not holds_page(events, at.WINDOW_FREED, event, window):
        clear_window(pages, windows, journal, counts, page)
        name_window(pages, windows, journal, counts, kept, window)
    else:
        released = release_window(pages, windows, journal, counts, page)
    note(journal, counts, at.JOURNAL_ARENA, position, page)
    arena[start + position] = kept
    return released


def shows_row(arena: Array, start: int, length: int, shown: int, is_whole: bool, scratch: Array) -> bool:
    """The pages that an event shows, as many as there are, are those of its row; where it is not whole, 0 is any page."""
    same = True
    for position in range(min(length, shown)):
        page = scratch[at.SCRATCH_SHARED, position]
        same = same and (page == arena[start + position] or (page == 0 and not is_whole))
    return same


def settle_row(ledger: int, row: int, length: int, tree_end: int, state: StateArrays) -> None:
    """What is known of the ledger's row after the event, and who has which row."""
    tables, users = state.tables, state.users
    row_before = tables[ledger, at.ROW]
    if row_before != row:
        if row_before != at.NO_ROW:
            users[row_before] = 0
            state.counts[at.ROWS_IN_USE] -= 1
        if row != at.NO_ROW:
            users[row] = ledger + 1
            state.counts[at.ROWS_IN_USE] += 1
    if row == at.NO_ROW:
        release_block(tables, state.arena, state.counts, ledger)
    tables[ledger, at.ROW], tables[ledger, at.LENGTH], tables[ledger, at.TREE_END] = row, length, tree_end


def move_pages(ledger: int, with_row: bool, event: int, events: EventArrays, state: StateArrays) -> bool:
    """Make the moves of a rule on the page ids of an event; False if they are not the ones that it lists."""
    table, moves, tables, arena, scratch = events.table, state.moves, state.tables, state.arena, state.scratch
    pages, windows, counts, journal = state.pages, state.windows, state.counts, state.journal
    followed = state.settings[at.FOLLOWED] != 0
    row, length, tree_end = tables[ledger, at.ROW], tables[ledger, at.LENGTH], tables[ledger, at.TREE_END]
    n_alloc = length_of(events, at.ALLOC, event)
    n_window = length_of(events, at.WINDOW_ALLOC, event) if followed else n_alloc
    n_shared = length_of(events, at.SHARED, event)
    if max(n_alloc, n_window, n_shared) > scratch.shape[1]:
        return False
    write_out(events, at.ALLOC, event, scratch[at.SCRATCH_ALLOC])
    if followed:
        write_out(events, at.WINDOW_ALLOC, event, scratch[at.SCRATCH_WINDOW])
    taken, freed, window_freed = 0, 0, 0
    takes_over = False
    told, told_length = table[at.PREFIX_ID_SEEN, event], 0
    n = 0
    while moves[n, 0] != 0:
        move, first, last = moves[n, 0], moves[n, 1], moves[n, 2]
        start = tables[ledger, at.START]
        if move == at.TAKE_ROW:
            row = int(table[at.ROW_SEEN, event])
            if tables[ledger, at.ROW] != at.NO_ROW or row < 0 or row >= state.users.shape[0] or state.users[row] != 0:
                return False
            if counts[at.ROWS_IN_USE] >= state.settings[at.ROWS]:
                return False
            length, tree_end = 0, 0
        elif row == at.NO_ROW:
            return False
        elif move == at.SHARE:
            if length != 0 or not share_pages(ledger, first, event, events, state):
                return False
            length, tree_end, takes_over, told_length = first, first, True, first
        elif move == at.TAKE:
            if first != length or taken + (last - first) > min(n_alloc, n_window):
                return False
            if not take_new_pages(ledger, first, last, taken, state):
                return False
            taken += last - first
            length = last
        elif move == at.FREE_PAGES:
            if last != length or first < tree_end:
                return False
            if not give_back(arena, start, first, last, ledger, pages, journal, counts):
                return False
            if followed:
                window_freed += release_windows(arena, start, first, last, pages, windows, journal, counts)
            freed += last - first
            length = first
        elif move == at.FREE_WINDOW:
            if first < 0 or last > length:
                return False
            window_freed += release_windows(arena, start, first, last, pages, windows, journal, counts)
        elif move == at.INSERT:
            takes_over = True
            duplicates, freed_from = last, moves[n, 3]
            same = min(max(duplicates, tree_end), first)
            if first < tree_end or first > length or (tree_end < same and tree_end < freed_from):
                return False
            if n_shared > 0:
                write_out(events, at.SHARED, event, scratch[at.SCRATCH_SHARED])
            before = int(arena[start + tree_end - 1]) if tree_end > 0 else at.ROOT
            for position in range(tree_end, same):
                released = give_up_duplicate(ledger, position, before, event, events, state)
                if released < 0:
                    return False
                freed += 1
                window_freed += released
                before = int(arena[start + position]) if position < n_shared else at.UNKNOWN
            if not hand_to_tree(arena, start, same, first, before, ledger, pages, journal, counts):
                return False
            last_in_tree = int(arena[start + first - 1]) if same < first else before
            if not has_prefix_id(last_in_tree, told, first, ledger, state):
                return False
            told_length = first
            is_whole = table[at.ACTION, event] == at.AN_INSERT
            if table[at.SHARED_SEEN, event] != at.ABSENT and (
                n_shared > first
                or (is_whole and n_shared < first)
                or not shows_row(arena, start, length, n_shared, is_whole, scratch)
            ):
                return False
            pin(arena, start, tree_end, first, 1, pages, journal, counts)
            tree_end = first
        elif move == at.DROP_ROW:
            pin(arena, start, 0, min(tree_end, length), -1, pages, journal, counts)
            row, length, tree_end = at.NO_ROW, 0, 0
        n += 1
    names_a_prefix = told != at.ABSENT
    if taken != n_alloc or taken != n_window or ((n_shared > 0 or names_a_prefix) and not takes_over):
        return False
    if with_row and row != at.NO_ROW and table[at.ROW_SEEN, event] != row:
        return False
    if not lists_what_goes_back(events, event, pages, freed):
        return False
    if followed and not lists_marked_windows(events, event, windows, window_freed, journal, counts):
        return False
    settle_row(ledger, row, length, tree_end, state)
    if names_a_prefix and told_length > 0:
        state.prefix_lengths[told] = told_length
        tables[ledger, at.TOLD_LENGTH], tables[ledger, at.TOLD_ID] = told_length, told
    return True


def is_read(page: int, events: EventArrays, event: int, state: StateArrays) -> bool:
    """Whether the window of some row's next token reaches a page of the row's protected prefix."""
    tables, arena, users = state.tables, state.arena, state.users
    for row in range(users.shape[0]):
        ledger = users[row] - 1
        if ledger >= 0:
            for position in range(min(tables[ledger, at.TREE_END], tables[ledger, at.LENGTH])):
                if arena[tables[ledger, at.START] + position] == page:
                    if ask(state, at.STILL_NEEDS, position, ledger, events, event) != 0:
                        return True
                    break
    return False


def evict_pages(event: int, events: EventArrays, state: StateArrays) -> bool:
    """The tree frees pages that no row's protected prefix holds and none of its others continues, and window pages."""
    pages, windows, counts, journal = state.pages, state.windows, state.counts, state.journal
    followed = state.settings[at.FOLLOWED] != 0
    gone = 0
    for run in range(events.begins[at.FREED, event], events.ends[at.FREED, event]):
        page = int(events.runs[run, 0])
        could, windows_gone = evict_run(page, page + int(events.runs[run, 1]), pages, windows, journal, counts)
        if not could:
            return False
        gone += windows_gone
    for run in range(events.begins[at.FREED, event], events.ends[at.FREED, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if not may_be_evicted(pages[at.BEHIND_IT, page]):
                return False
    if followed and not evict_windows(gone, event, events, state):
        return False
    for run in range(events.begins[at.FREED, event], events.ends[at.FREED, event]):
        left_the_tree(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1]), pages, counts)
    return True


def evict_windows(gone: int, event: int, events: EventArrays, state: StateArrays) -> bool:
    """The event lists the window pages that went with its pages, `gone` of them, and others that no row's window reaches."""
    pages, windows, counts, journal = state.pages, state.windows, state.counts, state.journal
    for run in range(events.begins[at.WINDOW_FREED, event], events.ends[at.WINDOW_FREED, event]):
        for window in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if window < 1 or window >= windows.shape[1]:
                return False
            if windows[at.WINDOW_MARK, window] > 0:
                set_window(windows, journal, counts, window, at.WINDOW_MARK, 0)
                gone -= 1
                continue
            page = int(windows[at.BEHIND, window])
            if not is_in_tree(page, pages):
                return False
            if pages[at.PINS, page] > 0 and is_read(page, events, event, state):
                return False
            clear_window(pages, windows, journal, counts, page)
    return gone == 0


def lists_what_is_free(
    events: EventArrays, which: int, event: int, owned: Array, what: int, mark: int, free: int
) -> bool:
    """Whether a free list names each page that nobody owns (`free` of them), once."""
    right = True
    distinct = 0
    for run in range(events.begins[which, event], events.ends[which, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= owned.shape[1] or owned[what, page] != 0:
                right = False
                break
            if owned[mark, page] != 0:
                right = False
                break
            owned[mark, page] = 1
            distinct += 1
    for run in range(events.begins[which, event], events.ends[which, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= owned.shape[1]:
                break
            owned[mark, page] = 0
    return right and distinct == free
