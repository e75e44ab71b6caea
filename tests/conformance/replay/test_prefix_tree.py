"""What is known of the tree's paths, what events add to it, and what stays unknown."""

from __future__ import annotations

import itertools

from kvproof.conformance.replay.prefix_tree import PrefixMoves, PrefixTree, may_have_a_copy
from kvproof.spec.tree import ROOT, UNKNOWN


def tree_of(*paths: tuple[int, ...]) -> PrefixTree:
    tree = PrefixTree()
    tree.set_known({page: before for path in paths for page, before in zip(path, (ROOT, *path), strict=False)}, {})
    return tree


def shown(tree: PrefixTree, *path: int) -> str:
    """What is wrong with a row that begins with these pages; what it shows is known from then on."""
    moves, before = PrefixMoves(), ROOT
    for page in path:
        if wrong := tree.show(moves, page, before):
            return wrong
        before = page
    tree.commit(moves)
    return ""


def test_two_prefixes_may_begin_alike() -> None:
    tree = tree_of((1, 2, 3), (1, 4))
    assert shown(tree, 1, 2, 3) == shown(tree, 1, 4) == shown(tree, 1) == ""
    assert shown(tree, 1, 3) == "page 3 continues page 2 in the tree, but stands behind page 1 in the row"
    assert (tree.behind(1), sorted(tree.pages_behind(1))) == (2, [2, 4])


def test_a_page_of_which_nothing_is_known_may_stand_anywhere_until_an_event_shows_it() -> None:
    tree = tree_of((1, 2))
    assert shown(tree, 1, 5) == ""
    assert shown(tree, 5) == "page 5 continues page 1 in the tree, but begins the row"
    assert (tree.behind(1), tree.behind(UNKNOWN)) == (2, 0)


def test_one_event_does_not_show_an_unknown_page_in_two_places() -> None:
    assert shown(tree_of((1,)), 5, 5) == "page 5 begins a prefix of the tree, but stands behind page 5 in the row"


def test_a_page_that_left_the_tree_is_forgotten() -> None:
    tree = tree_of((1, 2))
    tree.remove(2)
    assert (tree.behind(1), dict(tree.known())) == (0, {1: ROOT})
    moves = PrefixMoves()
    tree.add(moves, 2, ROOT)
    tree.commit(moves)
    assert shown(tree, 2) == ""


def test_a_page_that_takes_the_place_of_another_has_its_continuations() -> None:
    tree, moves = tree_of((1, 2, 3), (1, 2, 4)), PrefixMoves()
    tree.replace(moves, 7, 2, before=1)
    assert tree.show(moves, 3, 7) == "", "within the same event"
    tree.commit(moves)
    tree.remove(2)
    assert shown(tree, 1, 7, 3) == shown(tree, 1, 7, 4) == ""
    assert (tree.behind(7), tree.behind(2), tree.behind(1)) == (2, 0, 1)


def test_where_it_is_not_known_which_page_was_replaced_its_continuations_are_not_known_any_more() -> None:
    tree, moves = tree_of((1, 2, 3)), PrefixMoves()
    tree.replace(moves, 7, 2, before=5)
    tree.commit(moves)
    tree.remove(2)
    assert dict(tree.known()) == {1: ROOT, 7: 5}
    assert shown(tree, 1, 3) == ""


def test_a_copy_goes_on_by_itself() -> None:
    tree = tree_of((1, 2))
    tree.copy().remove(2)
    assert tree.behind(1) == 1


OTHERS = itertools.count()


def told(tree: PrefixTree, page: int, number: int | None, length: int = 1, turn: str | None = None) -> str:
    """Of another turn each time, where none is named."""
    moves = PrefixMoves()
    wrong = tree.show_id(moves, page, number, length, turn or f"request {next(OTHERS)}")
    tree.commit(moves)
    return wrong


def test_all_that_is_told_of_one_prefix_agrees() -> None:
    tree = tree_of((1, 2))
    assert [told(tree, 2, number) for number in (None, 77, None, 77)] == [""] * 4
    assert told(tree, 2, 78) == "the prefix that ends with page 2 is number 77 in the tree, and number 78 in the row"
    assert told(tree, 1, 78) == "", "that prefix is another one, and nothing was shown of it"
    assert told(tree, UNKNOWN, 5) == ""
    assert told(tree, ROOT, 5) == "it has no page of the tree, and is number 5"
    assert dict(tree.ids()) == {2: 77, 1: 78}


def test_a_number_is_of_one_length_also_when_its_pages_have_left_the_tree() -> None:
    tree = tree_of((1, 2), (3,))
    assert told(tree, 2, 77, length=2) == ""
    tree.remove(2)
    assert told(tree, 3, 77) == "number 77 is of a prefix of 2 pages, and the row's has 1"


def test_a_number_is_of_one_length_also_where_no_event_names_the_page() -> None:
    tree = tree_of((1, 2))
    assert told(tree, 2, 77, length=2) == ""
    assert told(tree, UNKNOWN, 77, length=3) == "number 77 is of a prefix of 2 pages, and the row's has 3"
    assert told(tree, UNKNOWN, 78, length=3) == ""
    assert told(tree, 1, 78) == "number 78 is of a prefix of 3 pages, and the row's has 1"


def test_the_first_pages_of_a_turn_keep_their_number_until_it_is_over() -> None:
    tree = tree_of((1,), (3,))
    assert told(tree, 1, 77, turn="request r") == ""
    assert (
        told(tree, 3, 78, turn="request r")
        == "the first 1 pages of this turn were number 77 before, and are number 78 now"
    )
    assert told(tree, 3, 79, length=2, turn="request r") == "", "of more pages nothing was told"
    tree.forget("request r")
    assert told(tree, 1, 77, turn="request r") == ""


def test_one_number_is_of_one_path_at_a_time() -> None:
    tree = tree_of((1, 2), (3,))
    assert told(tree, 2, 77) == ""
    assert (
        told(tree, 3, 77)
        == "number 77 is the prefix that ends with page 2 in the tree, and ends with page 3 in the row"
    )
    tree.remove(2)
    assert told(tree, 3, 77) == "", "it was evicted and inserted again"


def test_a_copy_is_of_a_page_that_may_stand_there() -> None:
    assert may_have_a_copy(1, 0) and may_have_a_copy(0, 1)
    assert not may_have_a_copy(0, 0)


def test_a_number_stays_with_the_place_in_the_tree_and_goes_with_the_page() -> None:
    tree, moves = tree_of((1, 2)), PrefixMoves()
    told(tree, 2, 77)
    tree.replace(moves, 7, 2, before=1)
    tree.commit(moves)
    assert dict(tree.ids()) == {7: 77}
    tree.remove(7)
    assert told(tree, 7, 78) == ""
