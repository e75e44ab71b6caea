"""Page identity: each effect keeps every page with exactly one owner, over unbounded rows, positions and pages.

The ledger proof knows counts and ranges of one row. Here stands what those ranges mean: `table` maps row and position to a page,
`owner` a page to its owner, and the effects of `spec/effects.py` move pages between owners. Each is shown once to keep J1 to
J4, given the side conditions that it states there (`model/page_lemmas.py`); the ledger proof discharges those for every action.
What the effects do to the second pool stands in `model/window_map.py`.

The owner of a page is a function, so a page never has two. What must be shown is that the function agrees with the tables:
J1 a row's own positions name pages that are this row's, at that position (so no page stands in two rows or twice in one);
J2 a page owned by a row is named by it (so no page is orphaned);
J3 a row's protected prefix names pages of the tree;
J4 0 <= tree_end <= row_end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import z3

FREE, TREE = -1, -2
INT = z3.IntSort()
PAGES = z3.ArraySort(INT, INT)

OWNERSHIP = {
    "J1": "a row's own positions name pages of that row, at that position",
    "J2": "a page owned by a row is named by it",
    "J3": "a row's protected prefix names pages of the tree",
    "J4": "0 <= tree_end <= row_end",
}

# What an effect is given. A symbol is its name, so these are the same in the full pool and in the window pool.
ROW, FIRST, LAST, COUNT, PAGE = z3.Ints("r first last pages page")
FRESH, FRESH_AT = z3.Array("fresh", INT, INT), z3.Array("fresh_at", INT, INT)
"""By position, the page that is taken for it; and back."""
DUPLICATES, FREED_FROM = z3.Ints("duplicates freed_from")
KEPT, KEPT_AT = z3.Array("trees", INT, INT), z3.Array("trees_at", INT, INT)
"""By position, the tree's own page of which the row has a copy; and back."""


class Universe:
    """How `for all` is meant: over everything, with a pattern, or over a small finite instance."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size

    def all(self, count: int, body: Callable[..., Any], pattern: Callable[..., Any]) -> Any:
        if self.size is None:
            names = z3.Ints(" ".join("ijk"[:count]))
            return z3.ForAll(list(names), body(*names), patterns=[pattern(*names)])
        return z3.And(*(body(*map(z3.IntVal, values)) for values in itertools.product(range(self.size), repeat=count)))

    def define(self, array: Any, value: Callable[[Any], Any]) -> Any:
        """The array holds `value(k)` at each k: an axiom that every SMT-LIB solver reads, where a lambda term is Z3's own."""
        return self.all(1, lambda k: array[k] == value(k), lambda k: array[k])

    def inside(self, *values: Any) -> Any:
        """Rows and pages are numbered from 0."""
        each = [v >= 0 if self.size is None else z3.And(v >= 0, v < self.size) for v in values]
        return z3.And(*each) if len(each) > 1 else each[0]  # SMT-LIB has no conjunction of one


def state(suffix: str) -> SimpleNamespace:
    return SimpleNamespace(
        owner=z3.Array("owner" + suffix, INT, INT),
        pos=z3.Array("pos" + suffix, INT, INT),
        table=z3.Array("table" + suffix, INT, PAGES),
        tree_end=z3.Array("tree_end" + suffix, INT, INT),
        row_end=z3.Array("row_end" + suffix, INT, INT),
    )


def named(s: SimpleNamespace, row: Any, k: Any) -> Any:
    return z3.Select(z3.Select(s.table, row), k)


def ownership(u: Universe, s: SimpleNamespace) -> dict[str, Any]:
    """J1 to J4 of a state."""

    def j1(i: Any, k: Any) -> Any:
        own = z3.And(i >= 0, s.tree_end[i] <= k, k < s.row_end[i])
        page = named(s, i, k)
        return z3.Implies(own, z3.And(s.owner[page] == i, s.pos[page] == k, u.inside(page)))

    def j2(g: Any) -> Any:
        row, k = s.owner[g], s.pos[g]
        return z3.Implies(
            row >= 0, z3.And(s.tree_end[row] <= k, k < s.row_end[row], named(s, row, k) == g, u.inside(row))
        )

    def j3(i: Any, k: Any) -> Any:
        page = named(s, i, k)
        return z3.Implies(z3.And(i >= 0, k >= 0, k < s.tree_end[i]), z3.And(s.owner[page] == TREE, u.inside(page)))

    def j4(i: Any) -> Any:
        ordered = z3.And(s.tree_end[i] >= 0, s.tree_end[i] <= s.row_end[i])
        return z3.Implies(i >= 0, ordered if u.size is None else z3.And(ordered, s.row_end[i] <= u.size))

    return {
        "J1": u.all(2, j1, lambda i, k: named(s, i, k)),
        "J2": u.all(1, j2, lambda g: s.owner[g]),
        "J3": u.all(2, j3, lambda i, k: named(s, i, k)),
        "J4": u.all(1, j4, lambda i: s.row_end[i]),
    }


def same(s: SimpleNamespace, t: SimpleNamespace, *changed: str) -> list[Any]:
    return [getattr(t, name) == getattr(s, name) for name in vars(s) if name not in changed]


# What an effect does: formulas over before s and after t.
Meaning = list[Any]


def _take(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """Fresh pages fresh[k] for positions [first, last) of row r."""
    r, first, last, fresh, at = ROW, FIRST, LAST, FRESH, FRESH_AT
    row = z3.Array("row", INT, INT)

    def is_free(j: Any) -> Any:
        taken = z3.And(first <= j, j < last)
        return z3.Implies(taken, z3.And(s.owner[fresh[j]] == FREE, at[fresh[j]] == j, u.inside(fresh[j])))

    def hit(g: Any) -> Any:
        return z3.And(first <= at[g], at[g] < last, fresh[at[g]] == g)

    meaning = [
        r >= 0,
        first >= 0,
        first < last,
        u.inside(r),
        *same(s, t, "owner", "pos", "table", "row_end"),
        u.all(1, is_free, lambda j: fresh[j]),
        t.row_end == z3.Store(s.row_end, r, last),
        u.define(row, lambda k: z3.If(z3.And(first <= k, k < last), fresh[k], named(s, r, k))),
        t.table == z3.Store(s.table, r, row),
        u.define(t.owner, lambda g: z3.If(hit(g), r, s.owner[g])),
        u.define(t.pos, lambda g: z3.If(hit(g), at[g], s.pos[g])),
    ]
    if u.size is not None:
        meaning.append(last <= u.size)
    return meaning


def _free(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """The pages behind positions [first, last) of row r become free; the row ends at first."""
    r, first, last = ROW, FIRST, LAST

    def freed(k: Any) -> Any:
        return z3.Implies(z3.And(first <= k, k < last), t.owner[named(s, r, k)] == FREE)

    def only(g: Any) -> Any:
        at = z3.And(first <= s.pos[g], s.pos[g] < last, named(s, r, s.pos[g]) == g)
        by_prefix = z3.And(s.owner[g] == TREE, t.owner[g] == FREE, first < s.tree_end[r])
        return z3.Or(t.owner[g] == s.owner[g], z3.And(t.owner[g] == FREE, at), by_prefix)

    meaning = [
        r >= 0,
        first >= 0,
        first < last,
        u.inside(r),
        *same(s, t, "owner", "row_end"),
        t.row_end == z3.Store(s.row_end, r, first),
        u.all(1, freed, lambda k: named(s, r, k)),
        u.all(1, only, lambda g: t.owner[g]),
    ]
    if u.size is not None:
        meaning.append(last <= u.size)
    return meaning


def _share(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """A matched prefix of `pages` tree pages is written into row r."""
    r, pages = ROW, COUNT
    matched, row = z3.Array("matched", INT, INT), z3.Array("row", INT, INT)

    def of_tree(j: Any) -> Any:
        return z3.Implies(z3.And(j >= 0, j < pages), z3.And(s.owner[matched[j]] == TREE, u.inside(matched[j])))

    meaning = [
        r >= 0,
        pages >= 0,
        u.inside(r),
        *same(s, t, "table", "tree_end", "row_end"),
        u.all(1, of_tree, lambda j: matched[j]),
        u.define(row, lambda k: z3.If(z3.And(k >= 0, k < pages), matched[k], named(s, r, k))),
        t.table == z3.Store(s.table, r, row),
        t.tree_end == z3.Store(s.tree_end, r, pages),
        t.row_end == z3.Store(s.row_end, r, pages),
    ]
    if u.size is not None:
        meaning.append(pages <= u.size)
    return meaning


def _insert(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """Pages [tree_end, last) of row r go to the tree; below `duplicates` it had them: its own are named, the row's freed."""
    r, last, duplicates, trees = ROW, LAST, DUPLICATES, KEPT
    row = z3.Array("row", INT, INT)
    start = s.tree_end[r]

    def of_tree(j: Any) -> Any:
        replaced = z3.And(start <= j, j < duplicates)
        return z3.Implies(replaced, z3.And(s.owner[trees[j]] == TREE, u.inside(trees[j])))

    def moved(g: Any) -> Any:
        copy = z3.If(s.pos[g] < FREED_FROM, s.owner[g], FREE)
        return z3.If(in_row(s, g), z3.If(s.pos[g] < duplicates, copy, TREE), s.owner[g])

    return [
        r >= 0,
        u.inside(r),
        *same(s, t, "owner", "table", "tree_end"),
        u.all(1, of_tree, lambda j: trees[j]),
        u.define(row, lambda k: z3.If(z3.And(start <= k, k < duplicates), trees[k], named(s, r, k))),
        t.table == z3.Store(s.table, r, row),
        t.tree_end == z3.Store(s.tree_end, r, last),
        u.define(t.owner, moved),
    ]


def in_row(s: SimpleNamespace, g: Any) -> Any:
    """The row's own page, of those that an insert hands over."""
    return z3.And(s.owner[g] == ROW, s.tree_end[ROW] <= s.pos[g], s.pos[g] < LAST)


def _drop_row(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """Row r is returned: it names nothing any more."""
    r = ROW
    return [
        r >= 0,
        u.inside(r),
        *same(s, t, "tree_end", "row_end"),
        t.tree_end == z3.Store(s.tree_end, r, 0),
        t.row_end == z3.Store(s.row_end, r, 0),
    ]


def _evict(u: Universe, s: SimpleNamespace, t: SimpleNamespace) -> Meaning:
    """The tree frees one page of its own."""
    g = PAGE
    return [u.inside(g), s.owner[g] == TREE, *same(s, t, "owner"), t.owner == z3.Store(s.owner, g, FREE)]


def unpinned(u: Universe, s: SimpleNamespace) -> Any:
    """The page is in no row's protected prefix."""

    def at(i: Any, k: Any) -> Any:
        return z3.Implies(z3.And(i >= 0, k >= 0, k < s.tree_end[i]), named(s, i, k) != PAGE)

    return u.all(2, at, lambda i, k: named(s, i, k))


FULL_EFFECTS: dict[str, Callable[[Universe, SimpleNamespace, SimpleNamespace], Meaning]] = {
    "Take": _take,
    "Free": _free,
    "Share": _share,
    "Insert": _insert,
    "DropRow": _drop_row,
    "Evict": _evict,
}
