"""What each effect can do to pages: situations that its meaning must allow, on three rows, positions and pages.

The lemmas of `model/page_lemmas.py` show that nothing goes wrong in what an effect does. A meaning that allows too little would
keep every lemma: an effect that never happens does no harm. So here stands, for the smallest and the largest row, what an
effect must be able to do, to every array that it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kvproof.model.page_lemmas import AFTER, FINITE, conditions, holds_before, meaning
from kvproof.model.pages import (
    COUNT,
    DUPLICATES,
    FIRST,
    FREE,
    FREED_FROM,
    FRESH,
    KEPT,
    LAST,
    PAGE,
    ROW,
    TREE,
    named,
    state,
)
from kvproof.model.questions import POSSIBLE, PROVED, Asker, Posed, Question
from kvproof.model.window_map import NONE, window_state

BEFORE, AFTERWARDS = state(""), state(AFTER)
WINDOWS, WINDOWS_AFTER = window_state(""), window_state(AFTER)
Formulas = Sequence[Any]


def _row(r: int, tree_end: int, row_end: int, window_start: int, *pages: int) -> Formulas:
    """Before the effect; the row is also the one that it is about."""
    s = BEFORE
    ends = [r == ROW, s.tree_end[r] == tree_end, s.row_end[r] == row_end, WINDOWS.window_start[r] == window_start]
    return [*ends, *(named(s, r, k) == page for k, page in enumerate(pages))]


def _row_after(r: int, tree_end: int, row_end: int, window_start: int, *pages: int) -> Formulas:
    t = AFTERWARDS
    ends = [t.tree_end[r] == tree_end, t.row_end[r] == row_end, WINDOWS_AFTER.window_start[r] == window_start]
    return [*ends, *(named(t, r, k) == page for k, page in enumerate(pages))]


def _owners(*owners: int) -> Formulas:
    return [BEFORE.owner[page] == owner for page, owner in enumerate(owners)]


def _owners_after(*owners: int) -> Formulas:
    return [AFTERWARDS.owner[page] == owner for page, owner in enumerate(owners)]


def _map(*windows: int) -> Formulas:
    """By page, its page of the window pool."""
    named_ones = [WINDOWS.behind[window] == page for page, window in enumerate(windows) if window != NONE]
    return [*(WINDOWS.window_of[page] == window for page, window in enumerate(windows)), *named_ones]


def _map_after(*windows: int) -> Formulas:
    v = WINDOWS_AFTER
    free = [v.behind[window] == NONE for window in range(FINITE.size or 0) if window not in windows]
    named_ones = [v.behind[window] == page for page, window in enumerate(windows) if window != NONE]
    return [*(v.window_of[page] == window for page, window in enumerate(windows)), *named_ones, *free]


def _tombstones(*are: bool) -> Formulas:
    return [WINDOWS.tombstone[page] == is_one for page, is_one in enumerate(are)]


def _tombstones_after(*are: bool) -> Formulas:
    return [WINDOWS_AFTER.tombstone[page] == is_one for page, is_one in enumerate(are)]


def _positions_after(*positions: int) -> Formulas:
    return [AFTERWARDS.pos[page] == position for page, position in enumerate(positions) if position != NONE]


SITUATIONS: dict[str, dict[str, Formulas]] = {
    "Take": {
        "an empty row takes two pages": [
            *(
                *_row(0, 0, 0, 0, 1, 1),
                *_owners(FREE, 1, FREE),
                *_map(NONE, 0, NONE),
                BEFORE.pos[2] == 1,
                BEFORE.pos[0] == 0,
            ),
            *(FIRST == 0, LAST == 2, FRESH[0] == 2, FRESH[1] == 0),
            *(
                *_row_after(0, 0, 2, 0, 2, 0),
                *_owners_after(0, 1, 0),
                *_positions_after(1, NONE, 0),
                *_map_after(2, 0, 1),
            ),
        ],
        "the last row takes its last two pages": [
            *(*_row(2, 1, 1, 1, 1), *_owners(FREE, TREE, FREE), *_map(NONE, NONE, NONE)),
            *(FIRST == 1, LAST == 3, FRESH[1] == 0, FRESH[2] == 2),
            *(*_row_after(2, 1, 3, 1, 1, 0, 2), *_owners_after(2, TREE, 2), *_map_after(0, NONE, 2)),
        ],
        "a page is taken while the rest is someone's": [
            *(*_row(1, 0, 0, 0), *_owners(0, FREE, TREE), FIRST == 0, LAST == 1),
            *(*_row_after(1, 0, 1, 0, 1), *_owners_after(0, 1, TREE)),
        ],
    },
    "Free": {
        "the first row gives back all but what is the tree's": [
            *(*_row(0, 1, 3, 2, 2, 0, 1), *_owners(0, 0, TREE), *_map(NONE, 1, 0), FIRST == 1, LAST == 3),
            *(*_row_after(0, 1, 1, 1, 2), *_owners_after(FREE, FREE, TREE), *_map_after(NONE, NONE, 0)),
        ],
        "the last row gives back its only page": [
            *(*_row(2, 0, 1, 0, 2), *_owners(1, FREE, 2), *_map(0, NONE, 2), FIRST == 0, LAST == 1),
            *(*_row_after(2, 0, 0, 0), *_owners_after(1, FREE, FREE), *_map_after(0, NONE, NONE)),
        ],
        "a row gives back its last page": [
            *(*_row(0, 0, 3, 0, 0, 1, 2), *_owners(0, 0, 0), *_map(2, 1, 0), FIRST == 2, LAST == 3),
            *(*_row_after(0, 0, 2, 0, 0, 1), *_owners_after(0, 0, FREE), *_map_after(2, 1, NONE)),
        ],
    },
    "Share": {
        "the first row shares two pages": [
            *(*_row(0, 0, 0, 0, 1, 1, 1), *_owners(TREE, FREE, TREE), *_map(NONE, NONE, 1), COUNT == 2),
            *(*_row_after(0, 2, 2, 0, 2, 0, 1), *_owners_after(TREE, FREE, TREE), *_map_after(NONE, NONE, 1)),
        ],
        "the last row shares all": [
            *(*_row(2, 0, 0, 0, 1, 1, 1), *_owners(TREE, TREE, TREE), COUNT == 3),
            *_row_after(2, 3, 3, 0, 2, 0, 1),
        ],
        "nothing is shared": [*_row(1, 0, 0, 0), *_owners(FREE, 0, 2), COUNT == 0, *_row_after(1, 0, 0, 0)],
    },
    "Insert": {
        "of two pages one is a copy": [
            *(*_row(0, 0, 2, 1, 0, 1), *_owners(0, 0, TREE), *_map(NONE, 2, 0), *_tombstones(True, True, False)),
            *(LAST == 2, DUPLICATES == 1, FREED_FROM == 0, KEPT[0] == 2),
            *(*_row_after(0, 2, 2, 1, 2, 1), *_owners_after(FREE, TREE, TREE)),
            *(*_map_after(NONE, 2, 0), *_tombstones_after(True, False, False)),
        ],
        "the window page of a copy is handed on": [
            *(*_row(0, 0, 2, 0, 0, 1), *_owners(0, 0, TREE), *_map(1, 2, NONE), *_tombstones(True, True, True)),
            *(LAST == 2, DUPLICATES == 1, FREED_FROM == 0, KEPT[0] == 2),
            *(*_row_after(0, 2, 2, 0, 2, 1), *_owners_after(FREE, TREE, TREE)),
            *(*_map_after(NONE, 2, 1), *_tombstones_after(False, False, False)),
        ],
        "the window page of a copy goes": [
            *(*_row(0, 0, 2, 0, 0, 1), *_owners(0, 0, TREE), *_map(1, 2, NONE), *_tombstones(True, True, True)),
            *(LAST == 2, DUPLICATES == 1, FREED_FROM == 0, KEPT[0] == 2),
            *(*_map_after(NONE, 2, NONE), *_tombstones_after(False, False, True)),
        ],
        "what the window has passed goes to the tree, the rest stays the row's": [
            *(
                *_row(2, 1, 3, 3, 2, 0, 1),
                *_owners(2, 2, TREE),
                *_map(NONE, NONE, 1),
                *_tombstones(False, False, False),
            ),
            *(LAST == 2, DUPLICATES == 1, FREED_FROM == 0),
            *(*_row_after(2, 2, 3, 3, 2, 0, 1), *_owners_after(TREE, 2, TREE)),
            *(*_map_after(NONE, NONE, 1), *_tombstones_after(True, False, False)),
        ],
        "all of a row": [
            *(*_row(1, 0, 3, 1, 2, 1, 0), *_owners(1, 1, 1), *_map(0, 1, NONE), LAST == 3, DUPLICATES == 0),
            *(
                *_row_after(1, 3, 3, 1, 2, 1, 0),
                *_owners_after(TREE, TREE, TREE),
                *_tombstones_after(False, False, True),
            ),
        ],
        "a row whose copies the tree has, behind a page that was the tree's": [
            *(*_row(0, 1, 2, 0, 1, 0), *_owners(0, TREE, TREE), *_map(0, 1, 2), *_tombstones(True, False, False)),
            *(LAST == 2, DUPLICATES == 2, FREED_FROM == 1, KEPT[1] == 2),
            *(*_row_after(0, 2, 2, 0, 1, 2), *_owners_after(FREE, TREE, TREE), *_map_after(NONE, 1, 2)),
        ],
    },
    "DropRow": {
        "the first row": [
            *(*_row(0, 2, 2, 1, 1, 0), *_owners(TREE, TREE, 1), *_row_after(0, 0, 0, 0), *_owners_after(TREE, TREE, 1)),
        ],
        "the last row": [*_row(2, 3, 3, 3), *_row_after(2, 0, 0, 0)],
        "an empty row": [*_row(1, 0, 0, 0), *_owners(FREE, 0, 2), *_row_after(1, 0, 0, 0)],
    },
    "Evict": {
        "the first page": [
            *(PAGE == 0, *_owners(TREE, TREE, 1), *_map(2, NONE, 1), BEFORE.tree_end[0] == 1, named(BEFORE, 0, 0) == 1),
            *(*_owners_after(FREE, TREE, 1), *_map_after(NONE, NONE, 1)),
        ],
        "the last page, a tombstone, whose name a row keeps behind its end": [
            *(
                PAGE == 2,
                *_owners(0, FREE, TREE),
                *_map(0, NONE, NONE),
                named(BEFORE, 0, 1) == 2,
                BEFORE.row_end[0] == 1,
            ),
            *(*_owners_after(0, FREE, FREE), *_map_after(0, NONE, NONE)),
        ],
    },
    "FreeWindow": {
        "the first row gives back two of three": [
            *(*_row(0, 0, 3, 0, 2, 0, 1), *_map(1, 2, 0), FIRST == 0, LAST == 2, *_row_after(0, 0, 3, 2, 2, 0, 1)),
            *(*_owners_after(0, 0, 0), *_map_after(NONE, 2, NONE)),
        ],
        "the last row gives back all that is its own": [
            *(*_row(2, 1, 3, 0, 2, 0, 1), *_owners(2, 2, TREE), *_map(1, 2, 0), FIRST == 1, LAST == 3),
            *(*_row_after(2, 1, 3, 3, 2, 0, 1), *_owners_after(2, 2, TREE), *_map_after(NONE, NONE, 0)),
        ],
    },
    "EvictWindow": {
        "the first page": [
            *(PAGE == 0, *_owners(TREE, TREE, 0), *_map(2, 1, 0), *_tombstones(False, False, True)),
            *(*_owners_after(TREE, TREE, 0), *_map_after(NONE, 1, 0), *_tombstones_after(True, False, True)),
        ],
        "the last page": [
            *(PAGE == 2, *_owners(FREE, 1, TREE), *_map(NONE, 1, 0), *_tombstones(False, True, False)),
            *(*_map_after(NONE, 1, NONE), *_tombstones_after(False, True, True)),
        ],
    },
}


def impossible_situations(asker: Asker) -> Iterator[str]:
    """What an effect must be able to do and cannot."""
    for effect, situations in SITUATIONS.items():
        for name, formulas in situations.items():
            question = Question(f"can: {effect}: {name}", partial(_pose, effect, formulas))
            if asker.answers(question)[POSSIBLE].verdict != PROVED:
                yield f"{effect} cannot happen: {name}"


def _pose(effect: str, formulas: Formulas) -> Posed:
    u = FINITE
    return Posed((*holds_before(u).values(), *meaning(u, effect), *conditions(u, effect).values(), *formulas), {})
