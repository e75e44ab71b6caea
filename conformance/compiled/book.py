"""The page book over arrays: an event's moves are made at once, and undone if one is not clean.

`replay/page_book.py` and `replay/window_book.py` make the same moves. Two books stay because they answer different questions.
This one asks only whether an event is clean; it must not allocate, and a journal undoes its moves. The other says what is
wrong, names owners, follows the wrong moves of a known fault, and takes no memory for pages that were never used. Written once
for both, each would carry what the other needs, and the interpreted checker would need numpy.

What holds the two equal: this book may be stricter, but never weaker. What it does not follow it answers with False, and the
interpreted checker judges the event. `tests/conformance/compiled/test_checker.py` compares reports over random runs and changes
of them; `tools/interpreter_agreement.py` compares the states of both after each event.

Pages move by places of a row's page table, `places.py`; here stand the journal that undoes moves, the window map, the lists of
an event and the blocks of page tables. These functions are compiled (`build.py`): they use arrays, numbers and each other only.
"""

from __future__ import annotations

from typing import Any

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.spec.tree import is_continued, is_of_tokens


def where(flag: bool, then: Any, otherwise: Any) -> Any:
    return then if flag else otherwise


def floor_pages(length: int, page_size: int, page_shift: int) -> int:
    return length >> page_shift if page_shift >= 0 else length // page_size


def ceil_pages(length: int, page_size: int, page_shift: int) -> int:
    return -(-length >> page_shift) if page_shift >= 0 else -(-length // page_size)


def length_of(events: EventArrays, which: int, event: int) -> int:
    """Pages of one list of an event."""
    total = 0
    for run in range(events.begins[which, event], events.ends[which, event]):
        total += int(events.runs[run, 1])
    return total


def write_out(events: EventArrays, which: int, event: int, into: Array) -> None:
    """One page of the list after the other."""
    place = 0
    for run in range(events.begins[which, event], events.ends[which, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            into[place] = page
            place += 1


def holds_page(events: EventArrays, which: int, event: int, page: int) -> bool:
    for run in range(events.begins[which, event], events.ends[which, event]):
        if int(events.runs[run, 0]) <= page < int(events.runs[run, 0]) + int(events.runs[run, 1]):
            return True
    return False


def note(journal: Array, counts: Array, what: int, place: int, before: int) -> None:
    """Remember a value that is about to change."""
    n = counts[at.JOURNAL]
    journal[n, 0] = what
    journal[n, 1] = place
    journal[n, 2] = before
    counts[at.JOURNAL] = n + 1


def note_all(journal: Array, counts: Array, what: int, first: int, last: int, before: int) -> None:
    """Remember a change that is the same from first to before last; one entry for all of them, however many they are."""
    note(journal, counts, what + ((last - first) << at.JOURNAL_TIMES), first, before)


def totals(counts: Array) -> tuple[int, int, int, int, int, int, int]:
    """The numbers of pages by owner. They stand in no journal: whoever may undo a move takes them before it."""
    return (
        counts[at.FREE_COUNT],
        counts[at.TREE_COUNT],
        counts[at.PROTECTED_COUNT],
        counts[at.WINDOW_FREE_COUNT],
        counts[at.WINDOW_TREE_COUNT],
        counts[at.WINDOW_PROTECTED_COUNT],
        counts[at.UNPLACED_COUNT],
    )


def undo(state: StateArrays, ledger: int, before: tuple[int, int, int, int, int, int, int]) -> None:
    """Put back what the journal holds, newest first, and the totals. Places are those of the ledger's page table."""
    counts, journal, pages, arena = state.counts, state.journal, state.pages, state.arena
    counts[at.FREE_COUNT], counts[at.TREE_COUNT], counts[at.PROTECTED_COUNT] = before[0], before[1], before[2]
    counts[at.WINDOW_FREE_COUNT], counts[at.WINDOW_TREE_COUNT] = before[3], before[4]
    counts[at.WINDOW_PROTECTED_COUNT], counts[at.UNPLACED_COUNT] = before[5], before[6]
    start = state.tables[ledger, at.START]
    for n in range(counts[at.JOURNAL] - 1, -1, -1):
        what, first, value = journal[n, 0] & at.JOURNAL_WHAT, journal[n, 1], journal[n, 2]
        last = first + (journal[n, 0] >> at.JOURNAL_TIMES)
        if what == at.JOURNAL_OWNERS:
            for place in range(start + first, start + last):
                pages[at.OWNER, arena[place]] = value
                pages[at.ABOVE, arena[place]] = 0  # it was not the tree's
                pages[at.BEHIND_IT, arena[place]] = 0
                pages[at.PREFIX_ID, arena[place]] = 0
        elif what == at.JOURNAL_PINS:
            for place in range(start + first, start + last):
                pages[at.PINS, arena[place]] -= value
        elif what == at.JOURNAL_RUN:
            for page in range(first, last):
                pages[at.OWNER, page] = value
                if pages[at.ABOVE, page] > 0:
                    pages[at.BEHIND_IT, pages[at.ABOVE, page]] += 1
        elif what == at.JOURNAL_ARENA:
            arena[start + first] = value
        elif what >= at.JOURNAL_WINDOWS:
            state.windows[what - at.JOURNAL_WINDOWS, first] = value
        else:
            pages[what, first] = value
    counts[at.JOURNAL] = 0


def set_page(pages: Array, journal: Array, counts: Array, page: int, what: int, value: int) -> None:
    note(journal, counts, what, page, pages[what, page])
    pages[what, page] = value


def set_window(windows: Array, journal: Array, counts: Array, window: int, what: int, value: int) -> None:
    note(journal, counts, at.JOURNAL_WINDOWS + what, window, windows[what, window])
    windows[what, window] = value


def name_window(pages: Array, windows: Array, journal: Array, counts: Array, page: int, window: int) -> None:
    """The map names `window` behind `page`."""
    set_page(pages, journal, counts, page, at.WINDOW_OF, window)
    set_window(windows, journal, counts, window, at.BEHIND, page)
    counts[at.WINDOW_FREE_COUNT] -= 1
    if pages[at.OWNER, page] == at.OWNED_BY_TREE:
        counts[at.WINDOW_TREE_COUNT] += 1
        counts[at.WINDOW_PROTECTED_COUNT] += int(pages[at.PINS, page] > 0)


def is_in_path(pages: Array, journal: Array, counts: Array, page: int, before: int) -> bool:
    """A row names a page of the tree behind the page `before`: whether it may. What was unknown of it is known then."""
    above = pages[at.ABOVE, page]
    if not is_continued(above, before):
        return False
    if above == at.UNKNOWN and before != at.UNKNOWN:
        set_page(pages, journal, counts, page, at.ABOVE, before)
        counts[at.UNPLACED_COUNT] -= 1
        if before > 0:
            set_page(pages, journal, counts, before, at.BEHIND_IT, pages[at.BEHIND_IT, before] + 1)
    return True


def has_prefix_id(page: int, told: int, length: int, ledger: int, state: StateArrays) -> bool:
    """The tokens of a ledger's row up to the end of this page of the tree, its first `length`, have this number: whether they
    may. It is known then.

    What a move that is undone leaves in `prefixes` says nothing: the page that it names has another number, or none.
    """
    pages, prefixes, journal, counts = state.pages, state.prefixes, state.journal, state.counts
    if told == at.ABSENT:
        return True
    if page == at.ROOT or told < 0 or told >= prefixes.shape[0]:
        return False
    told_length = state.tables[ledger, at.TOLD_LENGTH]
    if told_length == length and not is_of_tokens(state.tables[ledger, at.TOLD_ID], told):
        return False
    if state.prefix_lengths[told] != 0 and state.prefix_lengths[told] != length:
        return False
    if page == at.UNKNOWN:
        return True
    known, other = pages[at.PREFIX_ID, page], prefixes[told]
    if not is_of_tokens(known, told) or (other != 0 and other != page and pages[at.PREFIX_ID, other] == told):
        return False
    if known == 0:
        set_page(pages, journal, counts, page, at.PREFIX_ID, told)
    prefixes[told] = page
    return True


def clear_window(pages: Array, windows: Array, journal: Array, counts: Array, page: int) -> int:
    """The map names no window page behind `page` any more; the one that it named, 0 if there was none."""
    window = int(pages[at.WINDOW_OF, page])
    if window != 0:
        set_page(pages, journal, counts, page, at.WINDOW_OF, 0)
        set_window(windows, journal, counts, window, at.BEHIND, 0)
        counts[at.WINDOW_FREE_COUNT] += 1
        if pages[at.OWNER, page] == at.OWNED_BY_TREE:
            counts[at.WINDOW_TREE_COUNT] -= 1
            counts[at.WINDOW_PROTECTED_COUNT] -= int(pages[at.PINS, page] > 0)
    return window


def release_window(pages: Array, windows: Array, journal: Array, counts: Array, page: int) -> int:
    """The window page behind `page` goes back and is marked as one that the event must list; how many went back."""
    window = clear_window(pages, windows, journal, counts, page)
    if window == 0:
        return 0
    set_window(windows, journal, counts, window, at.WINDOW_MARK, windows[at.WINDOW_MARK, window] + 1)
    return 1


def lists_what_goes_back(events: EventArrays, event: int, pages: Array, going_back: int) -> bool:
    """Whether the event lists exactly the pages that go back, each once. Then they are free."""
    for run in range(events.begins[at.FREED, event], events.ends[at.FREED, event]):
        for page in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if page < 1 or page >= pages.shape[1] or pages[at.OWNER, page] != at.GOING_BACK:
                return False
            pages[at.OWNER, page] = at.OWNED_BY_NONE
            going_back -= 1
    return going_back == 0


def lists_marked_windows(
    events: EventArrays, event: int, windows: Array, marked: int, journal: Array, counts: Array
) -> bool:
    """Whether the event lists exactly the window pages that are marked, each as often as it is. It takes the marks away."""
    for run in range(events.begins[at.WINDOW_FREED, event], events.ends[at.WINDOW_FREED, event]):
        for window in range(int(events.runs[run, 0]), int(events.runs[run, 0]) + int(events.runs[run, 1])):
            if window < 1 or window >= windows.shape[1] or windows[at.WINDOW_MARK, window] == 0:
                return False
            set_window(windows, journal, counts, window, at.WINDOW_MARK, windows[at.WINDOW_MARK, window] - 1)
            marked -= 1
    return marked == 0


def block_class(wanted: int) -> int:
    """The n for which 2^n pages, at least 8, are enough."""
    n = 3
    while (1 << n) < wanted:
        n += 1
    return n


def release_block(tables: Array, arena: Array, counts: Array, ledger: int) -> None:
    """The block of a page table becomes the first free one of its size; its first entry names the next."""
    capacity = tables[ledger, at.CAPACITY]
    if capacity > 0:
        head = at.FREE_BLOCKS + block_class(capacity)
        arena[tables[ledger, at.START]] = counts[head]
        counts[head] = tables[ledger, at.START] + 1
    tables[ledger, at.CAPACITY] = 0


def make_room(tables: Array, arena: Array, counts: Array, ledger: int, length: int, wanted: int) -> None:
    """Give a page table of `length` pages a block for `wanted`. Nothing else changes, so this is never undone."""
    if tables[ledger, at.CAPACITY] >= wanted:
        return
    n = block_class(wanted)
    if counts[at.FREE_BLOCKS + n] > 0:
        start = counts[at.FREE_BLOCKS + n] - 1
        counts[at.FREE_BLOCKS + n] = arena[start]
    else:
        start = counts[at.ARENA_TOP]
        counts[at.ARENA_TOP] += 1 << n
    old = tables[ledger, at.START]
    for position in range(length):
        arena[start + position] = arena[old + position]
    release_block(tables, arena, counts, ledger)
    tables[ledger, at.START] = start
    tables[ledger, at.CAPACITY] = 1 << n
