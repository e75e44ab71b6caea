"""The full->window map: each effect keeps it true, over unbounded rows and pages of both pools.

A sliding-window model keeps the KV of its window layers in a second pool. `window_of` names the page of that pool behind a
page of the full pool, `behind` is the way back: the full page for which a window page was taken, or none while it is free. A
window page has no owner of its own: it belongs to whoever owns the full page. `window_start` of a row is where its window
begins, and `tombstone` says of which of its pages the tree has given up the window page (I10, sglang #22900):
J5 0 <= window_start <= row_end;
J6 a row's own position has a window page if and only if it is not below window_start;
J7 a window page that the map names is not free, and no other page names it;
J8 a window page that is not free is named by a page that is not free (so none is lost);
J9 a page of the tree has a window page if and only if it is no tombstone.

What an effect does to the full pool stands in `model/pages.py`; its row, positions and pages are the same symbols here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import z3

from kvproof.model.pages import (
    DUPLICATES,
    FIRST,
    FREE,
    FREED_FROM,
    FRESH,
    FRESH_AT,
    INT,
    KEPT,
    KEPT_AT,
    LAST,
    PAGE,
    ROW,
    TREE,
    Meaning,
    Universe,
    in_row,
    named,
    same,
)

NONE = -1

WINDOW_MAP = {
    "J5": "0 <= window_start <= row_end",
    "J6": "a row's own position has a window page if and only if the window has not passed it",
    "J7": "a window page that the map names is not free, and no other page names it",
    "J8": "a window page that is not free is named by a page that is not free",
    "J9": "a page of the tree has a window page if and only if it is no tombstone",
}


def window_state(suffix: str) -> SimpleNamespace:
    return SimpleNamespace(
        window_of=z3.Array("window_of" + suffix, INT, INT),
        behind=z3.Array("behind" + suffix, INT, INT),
        window_start=z3.Array("window_start" + suffix, INT, INT),
        tombstone=z3.Array("tombstone" + suffix, INT, z3.BoolSort()),
    )


def map_is_true(u: Universe, s: SimpleNamespace, w: SimpleNamespace) -> dict[str, Any]:
    """J5 to J9 of a state: `s` the full pool, `w` the window pool."""

    def j5(i: Any) -> Any:
        return z3.Implies(i >= 0, z3.And(w.window_start[i] >= 0, w.window_start[i] <= s.row_end[i]))

    def j6(i: Any, k: Any) -> Any:
        own = z3.And(i >= 0, s.tree_end[i] <= k, k < s.row_end[i])
        return z3.Implies(own, _has_window(w, named(s, i, k)) == (k >= w.window_start[i]))

    def j7(g: Any) -> Any:
        page = w.window_of[g]
        return z3.Implies(_has_window(w, g), z3.And(w.behind[page] == g, u.inside(page, g)))

    def j8(page: Any) -> Any:
        g = w.behind[page]
        return z3.Implies(g != NONE, z3.And(w.window_of[g] == page, s.owner[g] != FREE, u.inside(page, g)))

    def j9(g: Any) -> Any:
        return z3.Implies(s.owner[g] == TREE, _has_window(w, g) == z3.Not(w.tombstone[g]))

    return {
        "J5": u.all(1, j5, lambda i: w.window_start[i]),
        "J6": u.all(2, j6, lambda i, k: named(s, i, k)),
        "J7": u.all(1, j7, lambda g: w.window_of[g]),
        "J8": u.all(1, j8, lambda page: w.behind[page]),
        "J9": u.all(1, j9, lambda g: w.tombstone[g]),
    }


def _has_window(w: SimpleNamespace, page: Any) -> Any:
    return w.window_of[page] != NONE


def _take(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """Each fresh page brings one of the window pool."""
    fresh, at = z3.Array("fresh_window", INT, INT), z3.Array("fresh_window_at", INT, INT)

    def is_free(j: Any) -> Any:
        taken = z3.And(j >= FIRST, j < LAST)
        return z3.Implies(taken, z3.And(w.behind[fresh[j]] == NONE, at[fresh[j]] == j, u.inside(fresh[j])))

    def brings(g: Any) -> Any:
        return z3.And(FRESH_AT[g] >= FIRST, FRESH_AT[g] < LAST, FRESH[FRESH_AT[g]] == g)

    def is_brought(page: Any) -> Any:
        return z3.And(at[page] >= FIRST, at[page] < LAST, fresh[at[page]] == page)

    return [
        *same(w, v, "window_of", "behind"),
        u.all(1, is_free, lambda j: fresh[j]),
        u.define(v.window_of, lambda g: z3.If(brings(g), fresh[FRESH_AT[g]], w.window_of[g])),
        u.define(v.behind, lambda page: z3.If(is_brought(page), FRESH[at[page]], w.behind[page])),
    ]


def _free(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """With each page its window page goes, if it still has one; the row's window begins no later than the row ends."""
    start = z3.If(w.window_start[ROW] > FIRST, FIRST, w.window_start[ROW])
    cursor = v.window_start == z3.Store(w.window_start, ROW, start)
    return [*same(w, v, "window_of", "behind", "window_start"), cursor, *_gone(u, w, v, _freed(s, t))]


def _evict(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """With the tree's page its window page goes, if it still has one."""
    return [*same(w, v, "window_of", "behind"), *_gone(u, w, v, _freed(s, t))]


def _share(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """The tree's pages keep their window pages."""
    return same(w, v)


def _insert(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """What the window has passed goes to the tree as tombstones.

    The window page of a freed copy goes too, or is handed on to the tree's own page if that is a tombstone.
    """
    may_hand_on = z3.Array("may_hand_on", INT, z3.BoolSort())

    def replaced(j: Any) -> Any:
        return z3.And(s.tree_end[ROW] <= j, j < DUPLICATES)

    def named_once(j: Any) -> Any:
        return z3.Implies(replaced(j), KEPT_AT[KEPT[j]] == j)

    def is_copy(g: Any) -> Any:
        return z3.And(in_row(s, g), s.pos[g] < DUPLICATES, s.pos[g] >= FREED_FROM)

    def hands_on(j: Any) -> Any:
        both = z3.And(_has_window(w, named(s, ROW, j)), z3.Not(_has_window(w, KEPT[j])))
        return z3.And(replaced(j), j < LAST, may_hand_on[j], both)

    def is_given(g: Any) -> Any:
        return z3.And(replaced(KEPT_AT[g]), KEPT[KEPT_AT[g]] == g, hands_on(KEPT_AT[g]))

    def window_of(g: Any) -> Any:
        given = z3.If(is_given(g), w.window_of[named(s, ROW, KEPT_AT[g])], w.window_of[g])
        return z3.If(is_copy(g), NONE, given)

    def behind(page: Any) -> Any:
        g = w.behind[page]
        handed = z3.If(hands_on(s.pos[g]), KEPT[s.pos[g]], NONE)
        return z3.If(z3.And(g != NONE, is_copy(g)), handed, g)

    def tombstone(g: Any) -> Any:
        return z3.If(in_row(s, g), s.pos[g] < w.window_start[ROW], z3.And(w.tombstone[g], z3.Not(is_given(g))))

    return [
        *same(w, v, "window_of", "behind", "tombstone"),
        u.all(1, named_once, lambda j: KEPT[j]),
        u.define(v.window_of, window_of),
        u.define(v.behind, behind),
        u.define(v.tombstone, tombstone),
    ]


def _drop_row(u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace) -> Meaning:
    """The next user of the row begins with no window."""
    return [*same(w, v, "window_start"), v.window_start == z3.Store(w.window_start, ROW, 0)]


def _free_window(
    u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace
) -> Meaning:
    """The window pages behind positions [first, last) of row r become free; the pages of the full pool stay."""
    at = z3.Array("left_at", INT, INT)

    def leaves(j: Any) -> Any:
        page = named(s, ROW, j)
        named_at = z3.And(at[page] >= FIRST, at[page] < LAST, named(s, ROW, at[page]) == page)
        return z3.Implies(z3.And(j >= FIRST, j < LAST), named_at)

    def left(g: Any) -> Any:
        return z3.And(at[g] >= FIRST, at[g] < LAST, named(s, ROW, at[g]) == g)

    return [
        u.inside(ROW),
        FIRST >= 0,
        FIRST < LAST,
        *same(s, t),
        *same(w, v, "window_of", "behind", "window_start"),
        v.window_start == z3.Store(w.window_start, ROW, LAST),
        u.all(1, leaves, lambda j: named(s, ROW, j)),
        *_gone(u, w, v, left),
    ]


def _evict_window(
    u: Universe, s: SimpleNamespace, t: SimpleNamespace, w: SimpleNamespace, v: SimpleNamespace
) -> Meaning:
    """The tree frees the window page of one of its pages and keeps the page as a tombstone."""
    return [
        u.inside(PAGE),
        *same(s, t),
        *same(w, v, "window_of", "behind", "tombstone"),
        v.tombstone == z3.Store(w.tombstone, PAGE, True),
        *_gone(u, w, v, lambda g: g == PAGE),
    ]


def _freed(s: SimpleNamespace, t: SimpleNamespace) -> Callable[[Any], Any]:
    return lambda g: z3.And(s.owner[g] != FREE, t.owner[g] == FREE)


def _gone(u: Universe, w: SimpleNamespace, v: SimpleNamespace, is_gone: Callable[[Any], Any]) -> list[Any]:
    """The window pages behind these pages are free; those behind all others stay."""
    return [
        u.define(v.window_of, lambda g: z3.If(is_gone(g), NONE, w.window_of[g])),
        u.define(v.behind, lambda page: z3.If(is_gone(w.behind[page]), NONE, w.behind[page])),
    ]


MapMeaning = Callable[[Universe, SimpleNamespace, SimpleNamespace, SimpleNamespace, SimpleNamespace], Meaning]

MAP_EFFECTS: dict[str, MapMeaning] = {
    "Take": _take,
    "Free": _free,
    "Share": _share,
    "Insert": _insert,
    "DropRow": _drop_row,
    "Evict": _evict,
    "FreeWindow": _free_window,
    "EvictWindow": _evict_window,
}
"""What each effect means for the map. The last two leave the full pool as it is."""
