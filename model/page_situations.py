"""What each effect can do to pages, and what no state of pages may be, on three rows, positions and pages.

The lemmas of `model/page_lemmas.py` show that nothing goes wrong in what an effect does. A meaning that allows too little would
keep every lemma: an effect that never happens does no harm. So here stands, for the smallest and the largest row, what an
effect must be able to do, to every array that it writes; and states that J1 to J9 must deny, for the first row and the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import z3

from kvproof.model.page_lemmas import AFTER, FINITE, conditions, holds_before, meaning
from kvproof.model.pages import (
    COUNT,
    DUPLICATES,
    FIRST,
    FREE,
    FREED_FROM,
    FRESH,
    INT,
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
MATCHED, FRESH_WINDOW = z3.Array("matched", INT, INT), z3.Array("fresh_window", INT, INT)
"""Symbols of `model/pages.py` and `model/window_map.py`: what a place holds that an effect does not use is no matter of its."""
BEYOND = 5
"""No page."""


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
                *_row(0, 0, 0, 0, 1, 1, 1),
                *_owners(FREE, 1, FREE),
                *_map(NONE, 0, NONE),
                BEFORE.pos[2] == 1,
                BEFORE.pos[0] == 0,
            ),
            *(FIRST == 0, LAST == 2, FRESH[0] == 2, FRESH[1] == 0, FRESH[2] == 2),
            *(
                *_row_after(0, 0, 2, 0, 2, 0, 1),
                *_owners_after(0, 1, 0),
                *_positions_after(1, NONE, 0),
                *_map_after(2, 0, 1),
            ),
        ],
        "the last row takes its last two pages": [
            *(*_row(2, 1, 1, 1, 1), *_owners(FREE, TREE, FREE), *_map(NONE, NONE, NONE)),
            *(FIRST == 1, LAST == 3, FRESH[1] == 0, FRESH[2] == 2, FRESH_WINDOW[0] == BEYOND),
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
        "a row gives back all, and still names a page of the tree": [
            *(*_row(1, 0, 2, 0, 0, 1, 2), *_owners(1, 1, TREE), FIRST == 0, LAST == 2),
            *(*_row_after(1, 0, 0, 0, 0, 1, 2), *_owners_after(FREE, FREE, TREE)),
        ],
        "a row gives back its last page": [
            *(*_row(0, 0, 3, 0, 0, 1, 2), *_owners(0, 0, 0), *_map(2, 1, 0), FIRST == 2, LAST == 3),
            *(*_row_after(0, 0, 2, 0, 0, 1), *_owners_after(0, 0, FREE), *_map_after(2, 1, NONE)),
        ],
    },
    "Share": {
        "the first row shares two pages": [
            *(
                *_row(0, 0, 0, 0, 1, 1, 1, 2),
                *_owners(TREE, FREE, TREE),
                *_map(NONE, NONE, 1),
                COUNT == 2,
                MATCHED[2] == 0,
            ),
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
        "the window page of an only copy is handed on": [
            *(*_row(2, 0, 1, 0, 0), *_owners(2, FREE, TREE), *_map(1, NONE, NONE), *_tombstones(True, True, True)),
            *(FIRST == 0, LAST == 1, DUPLICATES == 1, FREED_FROM == 0, KEPT[0] == 2),
            *(*_owners_after(FREE, FREE, TREE), *_map_after(NONE, NONE, 1), *_tombstones_after(False, True, False)),
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
            *(LAST == 2, DUPLICATES == 2, FREED_FROM == 1, KEPT[0] == 0, KEPT[1] == 2, KEPT[2] == BEYOND),
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
        "a row gives back one": [
            *(*_row(1, 0, 2, 1, 2, 0), *_map(1, NONE, NONE), FIRST == 1, LAST == 2, *_row_after(1, 0, 2, 2, 2, 0)),
            *_map_after(NONE, NONE, NONE),
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


def _denied(r: int) -> dict[str, Formulas]:
    """Of a row, and of a page that has its number."""
    s, w = BEFORE, WINDOWS
    own = [s.tree_end[r] == 1, s.row_end[r] == 2]
    page = named(s, r, 1)
    return {
        "a row names a page of nobody": [*own, s.owner[page] == FREE],
        "a row names a page of the tree as its own": [*own, s.owner[page] == TREE],
        "a row names its page at another position": [*own, s.pos[page] == 0],
        "a row names no page": [*own, page == BEYOND],
        "a page is the row's and is not named": [*own, s.owner[r] == r, s.pos[r] == 1, page != r],
        "a page is the row's behind its end": [*own, s.owner[r] == r, s.pos[r] == 2],
        "a page is the row's and stands before it": [*own, s.owner[r] == r, s.pos[r] == -1, named(s, r, -1) == r],
        "a page is the row's and stands in its prefix": [*own, s.owner[r] == r, s.pos[r] == 0],
        "a shared page is free": [*own, s.owner[named(s, r, 0)] == FREE],
        "a shared page is no page": [*own, named(s, r, 0) == BEYOND],
        "the second shared page is free": [s.tree_end[r] == 2, s.owner[page] == FREE],
        "a prefix ends before it begins": [s.tree_end[r] == -1],
        "a prefix is longer than its row": [s.tree_end[r] == 1, s.row_end[r] == 0],
        "a window begins before its row": [w.window_start[r] == -1],
        "a window begins behind the end of its row": [*own, w.window_start[r] == 3],
        "the window has a page too few": [*own, w.window_start[r] == 1, w.window_of[page] == NONE],
        "the window has a page too many": [*own, w.window_start[r] == 2, w.window_of[page] == 1],
        "a window page has two pages": [w.window_of[r] == 1, w.behind[1] == 1 - r // 2],
        "a window page is taken and free": [w.window_of[r] == 1, w.behind[1] == NONE],
        "a window page is no page": [w.window_of[r] == BEYOND, w.behind[BEYOND] == r],
        "a window page is behind a page that does not name it": [w.behind[1] == r, w.window_of[r] == 2],
        "a window page is behind a free page": [w.behind[1] == r, s.owner[r] == FREE],
        "a tombstone has a window page": [s.owner[r] == TREE, w.tombstone[r], w.window_of[r] == 1],
        "a page of the tree has no window page and is no tombstone": [
            *(s.owner[r] == TREE, z3.Not(w.tombstone[r]), w.window_of[r] == NONE),
        ],
    }


DENIED = {f"{name}: row {r}": formulas for r in (0, 2) for name, formulas in _denied(r).items()}


def impossible_situations(asker: Asker) -> Iterator[str]:
    """What an effect must be able to do and cannot, and what may not be and is not denied."""
    for effect, situations in SITUATIONS.items():
        for name, formulas in situations.items():
            question = Question(f"can: {effect}: {name}", partial(_pose, effect, formulas))
            if asker.answers(question)[POSSIBLE].verdict != PROVED:
                yield f"{effect} cannot happen: {name}"
    answers = asker.answers(Question("can: no state of pages", _pose_denied))
    yield from (f"J1 to J9 do not deny: {name}" for (_, name), answer in answers.items() if answer.verdict != PROVED)


def _pose_denied() -> Posed:
    goals = {("denied", name): z3.Not(z3.And(*formulas, True)) for name, formulas in DENIED.items()}
    return Posed((*holds_before(FINITE).values(),), goals)


def _pose(effect: str, formulas: Formulas) -> Posed:
    u = FINITE
    return Posed((*holds_before(u).values(), *meaning(u, effect), *conditions(u, effect).values(), *formulas), {})
