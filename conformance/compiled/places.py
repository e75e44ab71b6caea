"""The pages in some places of a row's page table change hands, or are pinned, all in one stroke.

One entry of the journal undoes a stroke: all its pages had the same owner before, or it would not have been made. Where a page
is not as it must be the stroke ends, and what was done up to it is what the journal tells.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.book import name_window, note_all, release_window, set_page
from kvproof.conformance.compiled.layout import Array


def take_pages(
    arena: Array,
    start: int,
    first: int,
    last: int,
    fresh: Array,
    ledger: int,
    pages: Array,
    journal: Array,
    counts: Array,
) -> bool:
    """Pages that nobody owns, `fresh` one after the other, come into the places from first to before last."""
    owner = ledger + at.OWNED_FROM
    place = first
    while place < last:
        page = int(fresh[place - first])
        if page < 1 or page >= pages.shape[1]:
            break
        if pages[at.OWNER, page] != at.OWNED_BY_NONE or pages[at.WINDOW_OF, page] != 0:
            break
        pages[at.OWNER, page] = owner
        arena[start + place] = page
        place += 1
    note_all(journal, counts, at.JOURNAL_OWNERS, first, place, at.OWNED_BY_NONE)
    counts[at.FREE_COUNT] -= place - first
    return place == last


def take_windows(
    arena: Array,
    start: int,
    first: int,
    last: int,
    fresh: Array,
    pages: Array,
    windows: Array,
    journal: Array,
    counts: Array,
) -> bool:
    """Window pages behind which no page is come behind the pages in these places."""
    for place in range(first, last):
        window = int(fresh[place - first])
        if window < 1 or window >= windows.shape[1] or windows[at.BEHIND, window] != 0:
            return False
        name_window(pages, windows, journal, counts, int(arena[start + place]), window)
    return True


def give_back(
    arena: Array, start: int, first: int, last: int, ledger: int, pages: Array, journal: Array, counts: Array
) -> bool:
    """The row's own pages in these places go back: the event must list them."""
    owner = ledger + at.OWNED_FROM
    place = first
    while place < last and pages[at.OWNER, arena[start + place]] == owner:
        pages[at.OWNER, arena[start + place]] = at.GOING_BACK
        place += 1
    note_all(journal, counts, at.JOURNAL_OWNERS, first, place, owner)
    counts[at.FREE_COUNT] += place - first
    return place == last


def release_windows(
    arena: Array, start: int, first: int, last: int, pages: Array, windows: Array, journal: Array, counts: Array
) -> int:
    """The window pages behind these places go back; how many did."""
    gone = 0
    for place in range(first, last):
        gone += release_window(pages, windows, journal, counts, int(arena[start + place]))
    return gone


def hand_to_tree(
    arena: Array,
    start: int,
    first: int,
    last: int,
    before: int,
    ledger: int,
    pages: Array,
    journal: Array,
    counts: Array,
) -> bool:
    """The row's own pages in these places are the tree's from now on, the first of them behind the page `before`."""
    owner = ledger + at.OWNED_FROM
    with_window = 0
    place = first
    counts[at.UNPLACED_COUNT] += int(first < last and before == at.UNKNOWN)
    if first < last and before > 0:
        set_page(pages, journal, counts, before, at.BEHIND_IT, pages[at.BEHIND_IT, before] + 1)
    while place < last:
        page = arena[start + place]
        if pages[at.OWNER, page] != owner:
            break
        pages[at.OWNER, page] = at.OWNED_BY_TREE
        pages[at.ABOVE, page] = before
        pages[at.PREFIX_ID, page] = 0
        pages[at.BEHIND_IT, page] = int(place + 1 < last)
        before = page
        if pages[at.WINDOW_OF, page] != 0:
            with_window += 1
        place += 1
    note_all(journal, counts, at.JOURNAL_OWNERS, first, place, owner)
    counts[at.TREE_COUNT] += place - first
    counts[at.WINDOW_TREE_COUNT] += with_window
    return place == last


def pin(
    arena: Array, start: int, first: int, last: int, change: int, pages: Array, journal: Array, counts: Array
) -> None:
    """The row's protected prefix names the pages in these places, or (change -1) does so no more."""
    protected, with_window = 0, 0
    may_have_window = counts[at.WINDOW_TREE_COUNT] != 0  # the pages are the tree's
    for place in range(start + first, start + last):
        page = arena[place]
        times = pages[at.PINS, page]
        pages[at.PINS, page] = times + change
        more = int(times + change > 0) - int(times > 0)
        protected += more
        if may_have_window and pages[at.WINDOW_OF, page] != 0:
            with_window += more
    note_all(journal, counts, at.JOURNAL_PINS, first, last, change)
    counts[at.PROTECTED_COUNT] += protected
    counts[at.WINDOW_PROTECTED_COUNT] += with_window


def evict_run(first: int, last: int, pages: Array, windows: Array, journal: Array, counts: Array) -> tuple[bool, int]:
    """The tree frees a run of pages that no row's protected prefix names, and the window pages behind them.

    Whether it could, and how many window pages went."""
    if first < 1 or last > pages.shape[1]:
        return False, 0
    gone = 0
    page = first
    while page < last and pages[at.OWNER, page] == at.OWNED_BY_TREE and pages[at.PINS, page] <= 0:
        pages[at.OWNER, page] = at.OWNED_BY_NONE
        if pages[at.ABOVE, page] > 0:
            pages[at.BEHIND_IT, pages[at.ABOVE, page]] -= 1
        if pages[at.WINDOW_OF, page] != 0:
            counts[at.WINDOW_TREE_COUNT] -= 1
            gone += release_window(pages, windows, journal, counts, page)
        page += 1
    note_all(journal, counts, at.JOURNAL_RUN, first, page, at.OWNED_BY_TREE)
    counts[at.TREE_COUNT] -= page - first
    counts[at.FREE_COUNT] += page - first
    return page == last, gone


def left_the_tree(first: int, last: int, pages: Array, counts: Array) -> None:
    """Nothing is known any more of the prefixes of a run of evicted pages."""
    for page in range(first, last):
        counts[at.UNPLACED_COUNT] -= int(pages[at.ABOVE, page] == at.UNKNOWN)
        pages[at.ABOVE, page] = 0
        pages[at.PREFIX_ID, page] = 0
