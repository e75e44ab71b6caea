from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.impl.pools import KVAllocator
from kvproof.impl.radix import RadixTree


def new_tree(page_size: int, pages: int = 16) -> tuple[KVAllocator, RadixTree]:
    allocator = KVAllocator(pages, page_size)
    return allocator, RadixTree(allocator)


def insert(tree: RadixTree, allocator: KVAllocator, tokens: list[int]) -> int:
    """Insert as an owner would: with own pages, of which the duplicates and the cut-off end are freed again."""
    indices = allocator.alloc_extend(0, len(tokens), -1)
    had = tree.insert(tokens, indices)
    allocator.free(indices[:had])
    allocator.free(indices[len(tokens) - len(tokens) % allocator.page_size :])
    return had


def test_only_whole_pages_are_kept_and_matched() -> None:
    allocator, tree = new_tree(page_size=4)
    assert insert(tree, allocator, list(range(10))) == 0
    assert tree.evictable_size == 8
    assert len(tree.match(list(range(10))).indices) == 8
    assert len(tree.match(list(range(7))).indices) == 4
    assert len(tree.match([0, 1, 2]).indices) == 0


def test_insert_tells_how_much_was_there_and_splits_at_the_fork() -> None:
    allocator, tree = new_tree(page_size=2)
    insert(tree, allocator, [1, 2, 3, 4, 5, 6])
    assert insert(tree, allocator, [1, 2, 3, 4, 7, 8]) == 4
    assert insert(tree, allocator, [1, 2, 3, 9]) == 2
    assert tree.evictable_size == 10 and allocator.available_pages == 11


def test_a_lock_protects_the_path_up_to_the_root_and_survives_a_split() -> None:
    allocator, tree = new_tree(page_size=2)
    insert(tree, allocator, [1, 2, 3, 4])
    node = tree.match([1, 2, 3, 4]).node
    tree.inc_lock_ref(node)
    insert(tree, allocator, [1, 2, 5, 6])
    assert (tree.protected_size, tree.evictable_size) == (4, 2)
    tree.evict(100)
    assert (tree.protected_size, tree.evictable_size) == (4, 0)
    tree.dec_lock_ref(node)
    assert (tree.protected_size, tree.evictable_size) == (0, 4)
    tree.evict(100)
    assert allocator.available_pages == 16


def test_the_least_recently_used_leaf_goes_first() -> None:
    allocator, tree = new_tree(page_size=2)
    insert(tree, allocator, [1, 1])
    insert(tree, allocator, [2, 2])
    tree.match([1, 1])
    tree.evict(1)
    assert len(tree.match([1, 1]).indices) == 2
    assert len(tree.match([2, 2]).indices) == 0


@settings(max_examples=60)
@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=12))
def test_a_match_is_the_longest_inserted_prefix(page_size: int, sequences: list[list[int]]) -> None:
    allocator, tree = new_tree(page_size, pages=200)
    known: set[tuple[int, ...]] = set()
    for tokens in sequences:
        longest = max((n for n in range(0, len(tokens) + 1, page_size) if tuple(tokens[:n]) in known), default=0)
        assert len(tree.match(tokens).indices) == longest
        assert insert(tree, allocator, tokens) == longest
        known |= {tuple(tokens[:n]) for n in range(0, len(tokens) + 1, page_size)}
    pages = [page for node in tree.nodes() for page in node.value // page_size]
    assert len(set(map(int, pages))) == tree.evictable_size // page_size == 200 - allocator.available_pages
