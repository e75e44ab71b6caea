"""The page book: what effects mean in page ids, and which problem is named for pages that moved wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.conformance.replay.page_book import FREE, TREE, PageBook, Problem, RowTable
from kvproof.model.integers import Integers
from kvproof.spec.effects import DropRow, Effect, Free, Insert, Share, Take, TakeRow
from kvproof.spec.trace import Event

ROW = TakeRow(when=True)
CHARGE: Any = 8


def event(**fields: Any) -> Event:
    return Event(seq=0, action="extend", **fields)


def book_of(*, tree: tuple[int, ...] = (), pool_pages: int = 8) -> PageBook:
    """A book whose first event gave these pages to a row, and then to the tree."""
    book = PageBook(pool_pages, Integers(1, 8))
    insert = Insert(when=True, pages=len(tree), duplicates=0, freed_from=0)
    effects = (ROW, Take(0, len(tree), CHARGE), insert, DropRow(when=True))
    book.commit(book.foresee("first", effects, event(row=0, alloc=tree)))
    return book


def named(book: PageBook, *effects: Effect, **fields: Any) -> list[tuple[str, int | None]]:
    """The invariants that an event breaks, each with the page that it is about."""
    seen = event(**{"row": 1, **fields})
    return [(p.invariant, p.page) for p in book.foresee("session a", (ROW, *effects), seen).problems]


def test_pages_go_from_the_free_list_to_a_row_to_the_tree_and_back() -> None:
    book = book_of(tree=(3, 5))
    assert [book.owner(page) for page in (3, 5, 1)] == [TREE, TREE, FREE]
    book.commit(
        book.foresee("session a", (ROW, Share(True, 2), Take(2, 3, CHARGE)), event(row=1, shared=(3, 5), alloc=(7,)))
    )
    assert book.table("session a") == RowTable(1, [3, 5, 7], tree_end=2)
    assert (book.owner(7), book.protected, book.count(FREE)) == ("session a", 2, 5)
    moves = book.foresee("session a", (Free(2, 3), DropRow(True)), event(free=(7,)))
    assert (moves.freed, moves.problems) == ([7], [])
    book.commit(moves)
    assert (book.owner(7), book.table("session a"), book.protected) == (FREE, None, 0)
    assert book.evict(event(free=(3, 5)), lambda *_: False) == []
    assert book.count(FREE) == book.pool_pages


def test_nothing_changes_before_the_commit() -> None:
    book = book_of(tree=(3,))
    book.foresee("session a", (ROW, Share(True, 1), Take(1, 2, CHARGE)), event(row=1, shared=(3,), alloc=(4,)))
    assert (book.owner(4), book.table("session a"), book.protected) == (FREE, None, 0)


@pytest.mark.parametrize(
    ("effects", "fields", "expected"),
    [
        ((Take(0, 1, CHARGE),), {"alloc": (3,)}, [("I1", 3)]),
        ((Take(0, 2, CHARGE),), {"alloc": (0, 9)}, [("I1", None), ("I1", None)]),
        ((Share(True, 1),), {"shared": (4,)}, [("I1", 4)]),
        ((Share(True, 2),), {"shared": (3,)}, [("I12", None)]),
        ((Take(0, 1, CHARGE),), {"alloc": (4,)}, []),
    ],
    ids=["a page of the tree", "no page of the pool", "a page that is free", "too few pages", "a free page"],
)
def test_a_wrong_page_is_named(effects: tuple[Effect, ...], fields: dict[str, Any], expected: list[Any]) -> None:
    assert named(book_of(tree=(3,)), *effects, **fields) == expected


def test_a_row_in_use_is_not_handed_out() -> None:
    book = book_of()
    book.commit(book.foresee("session b", (ROW,), event(row=1)))
    (problem,) = book.foresee("session a", (ROW,), event(row=1)).problems
    assert problem.sentence == "row 1 is handed out while session b uses it"


def test_an_eviction_of_a_page_that_a_row_reads_names_the_reader() -> None:
    book = book_of(tree=(3, 5))
    book.commit(book.foresee("session a", (ROW, Share(True, 1)), event(row=1, shared=(3,))))
    problems = book.evict(event(free=(3, 5, 4)), lambda *_: False)
    assert [(p.invariant, p.page) for p in problems] == [("I11", 3), ("I1", 4)]
    assert problems[0].owner == f"{TREE}, read by session a"
    assert book.owner(5) == FREE


def test_an_eviction_of_a_page_without_the_one_that_continues_it_breaks_i13() -> None:
    (problem,) = book_of(tree=(3, 5, 4)).evict(event(free=(3, 4)), lambda *_: False)
    assert problem == Problem("I13", "evicted page 3 is continued by page 5, which stays in the tree")
    assert book_of(tree=(3, 5, 4)).evict(event(free=(3, 4, 5)), lambda *_: False) == []


SHARED = {
    "in another order": ((5, 3), "page 5 continues page 3 in the tree, but begins the row"),
    "one page twice": ((3, 3), "page 3 begins a prefix of the tree, but stands behind page 3 in the row"),
    "one page left out": ((3, 4), "page 4 continues page 5 in the tree, but stands behind page 3 in the row"),
    "a path of the tree": ((3, 5), ""),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_prefix_is_a_path_of_the_tree(name: str) -> None:
    shared, wrong = SHARED[name]
    problems = book_of(tree=(3, 5, 4)).foresee("session a", (ROW, Share(True, 2)), event(row=1, shared=shared)).problems
    sentence = f"the shared prefix is not a path of the tree: {wrong}"
    assert problems == ([Problem("I12", sentence)] if wrong else [])


def test_the_whole_prefix_of_another_prompt_is_found_by_its_number() -> None:
    book = book_of(tree=(3, 5))
    first = book.foresee("request b", (ROW, Share(True, 2)), event(row=0, shared=(3, 5), params={"prefix_id": 7}))
    book.commit(first)
    shared = {"row": 1, "shared": (3, 5)}
    assert named(book, Share(True, 2), **shared, params={"prefix_id": 7}) == named(book, Share(True, 2), **shared) == []
    (problem,) = book.foresee("a", (ROW, Share(True, 2)), event(**shared, params={"prefix_id": 8})).problems
    wrong = "the prefix that ends with page 5 is number 7 in the tree, and number 8 in the row"
    assert problem == Problem("I12", f"the row's prefix is not the request's: {wrong}")


def inserted(shown: tuple[int, ...], *, duplicates: int = 2) -> list[str]:
    """What is wrong with an insert that shows these pages. Its row has 6, 7, 8; the tree has the prefixes 3, 5 and 1, 2."""
    book = book_of(tree=(3, 5))
    beside = (ROW, Take(0, 2, CHARGE), Insert(when=True, pages=2, duplicates=0, freed_from=0), DropRow(when=True))
    book.commit(book.foresee("second", beside, event(row=0, alloc=(1, 2))))
    book.commit(book.foresee("session a", (ROW, Take(0, 3, CHARGE)), event(row=1, alloc=(6, 7, 8))))
    insert = Insert(when=True, pages=3, duplicates=duplicates, freed_from=0)
    seen = Event(seq=0, action="insert", row=1, free=(6, 7)[:duplicates], shared=shown)
    return [f"{p.invariant} {p.sentence}" for p in book.foresee("session a", (insert,), seen).problems]


def test_an_insert_shows_the_pages_of_its_row_with_those_of_one_prefix_in_place_of_duplicates() -> None:
    assert inserted((3, 5, 8)) == inserted((1, 2, 8)) == inserted((6, 7, 8), duplicates=0) == []
    wrong = "page 2 continues page 1 in the tree, but stands behind page 3 in the row"
    assert inserted((3, 2, 8)) == [f"I12 duplicate replaced by a page of another prefix: {wrong}"]
    for shown in ((3, 5, 7), (3, 5, 6)):
        named = f"page {shown[2]} at position 2 of the row, which has page 8 there"
        assert inserted(shown) == [f"I12 the insert shows {named}"]
    assert inserted((7, 6, 8), duplicates=0) == [
        "I12 the insert shows page 7 at position 0 of the row, which has page 6 there"
    ]


def test_a_large_pool_takes_no_memory_before_it_is_used() -> None:
    assert book_of(pool_pages=10**15).count(FREE) == 10**15
