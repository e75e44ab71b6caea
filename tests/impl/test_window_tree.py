"""Tombstones: what a match can still build on, what a lock protects in each pool, and what an eviction takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.impl.pools import KVIndices
from kvproof.impl.window_pool import WindowAllocator
from kvproof.impl.window_tree import WindowTree

PAGE_SIZE = 4


def new_tree(window: int, page_size: int = PAGE_SIZE, pages: int = 40) -> tuple[WindowAllocator, WindowTree]:
    pool = WindowAllocator(pages, pages, page_size, window)
    return pool, WindowTree(pool)


def put(pool: WindowAllocator, tree: WindowTree, tokens: list[int], evicted_len: int = 0) -> KVIndices:
    """Insert tokens whose window pages before `evicted_len` are gone, as a request that ends does."""
    indices = pool.alloc_extend(0, len(tokens), -1)
    pool.free_window(indices[:evicted_len])
    had = tree.insert(tokens, indices)
    tree.heal(tokens[:had], indices[:had])
    pool.free(indices[:had])
    return indices


def tokens(count: int, first: int = 1) -> list[int]:
    return list(range(first, first + count))


@pytest.mark.parametrize(("window", "reusable"), [(1, 16), (4, 16), (5, 0), (16, 0)])
def test_a_match_ends_where_its_window_is_complete(window: int, reusable: int) -> None:
    """16 tokens of which the first 12 lost their window pages: position 16 looks back to 16 - window."""
    pool, tree = new_tree(window)
    put(pool, tree, tokens(16), evicted_len=12)
    assert len(tree.match_reusable(tokens(16)).indices) == reusable
    assert len(tree.match(tokens(16)).indices) == 16


def test_a_match_is_shortened_to_an_end_before_the_tombstones() -> None:
    pool, tree = new_tree(window=6)
    put(pool, tree, tokens(24))
    pool.free_window(tree.match(tokens(24)).indices[12:20])
    tree.window_evictable_size -= 8
    found = tree.match_reusable(tokens(24))
    assert len(found.indices) == 12 and found.node.key == tuple(tokens(12))


def test_a_lock_protects_the_whole_path_and_of_the_window_pool_what_the_next_token_sees() -> None:
    pool, tree = new_tree(window=5)
    put(pool, tree, tokens(24))
    tree.inc_lock_ref(tree.match(tokens(24)).node)
    assert (tree.protected_size, tree.evictable_size) == (24, 0)
    assert (tree.window_protected_size, tree.window_evictable_size) == (8, 16)


def test_an_unlock_finds_what_was_locked_although_the_tree_was_cut_since() -> None:
    pool, tree = new_tree(window=10)
    put(pool, tree, tokens(24))
    node = tree.match(tokens(24)).node
    tree.inc_lock_ref(node)
    tree.match(tokens(20))
    tree.match(tokens(16))
    assert tree.window_protected_size == 12
    tree.dec_lock_ref(node)
    assert (tree.window_protected_size, tree.window_evictable_size, tree.protected_size) == (0, 24, 0)
    assert all(each.window_lock_ref == 0 for each in tree.nodes())


def test_an_inner_node_becomes_a_tombstone_and_a_leaf_goes_entirely() -> None:
    pool, tree = new_tree(window=4)
    put(pool, tree, tokens(16))
    put(pool, tree, [*tokens(8), *tokens(8, 100)])
    tree.match(tokens(16))  # the other branch is the least recently used leaf now
    before = pool.available_pages
    tree.evict_window(8)
    assert pool.available_pages == before + 2 and len(tree.match([*tokens(8), *tokens(8, 100)]).indices) == 8
    tree.match(tokens(16))
    tree.evict_window(4)
    assert pool.available_pages == before + 2 and len(tree.match(tokens(16)).indices) == 16
    assert pool.window_pages_of(tree.match(tokens(16)).indices).tolist()[:2] == [0, 0]
    assert (tree.window_evictable_size, tree.evictable_size) == (8, 16)


def test_with_the_last_leaf_its_parents_without_window_pages_go() -> None:
    pool, tree = new_tree(window=4)
    put(pool, tree, tokens(16))
    tree.match(tokens(8))
    tree.match(tokens(16))
    tree.evict_window(8)
    assert (pool.available_pages, pool.available_window_pages) == (36, 38), "the upper half is a tombstone"
    tree.evict_window(8)
    assert (pool.available_pages, pool.available_window_pages) == (40, 40) and not list(tree.nodes())
    assert tree.window_evictable_size == tree.evictable_size == 0


def test_window_pages_under_a_lock_are_not_taken() -> None:
    pool, tree = new_tree(window=4)
    put(pool, tree, tokens(16))
    tree.inc_lock_ref(tree.match(tokens(16)).node)
    tree.evict_window(100)
    assert pool.window_pages_of(tree.match(tokens(16)).indices).tolist() == [0, 0, 0, 4]
    assert len(tree.match_reusable(tokens(16)).indices) == 16


def test_a_duplicate_heals_a_tombstone() -> None:
    pool, tree = new_tree(window=8)
    first = put(pool, tree, tokens(16), evicted_len=12)
    assert len(tree.match_reusable(tokens(16)).indices) == 0 and tree.window_evictable_size == 4
    put(pool, tree, tokens(16))
    assert len(tree.match_reusable(tokens(16)).indices) == 16 and tree.window_evictable_size == 16
    assert tree.match(tokens(16)).indices.tolist() == first.tolist()
    assert (pool.available_pages, pool.available_window_pages) == (36, 36)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(("put", "lock", "unlock", "evict", "evict_window", "match")),
        st.integers(0, 5),
        st.integers(0, 24),
    ),
    max_size=40,
)


@given(ACTS, st.sampled_from((1, 3, 4, 9, 40)), st.sampled_from((1, 4)))
def test_counters_equal_a_recount_and_what_is_locked_stays(
    acts: list[tuple[str, int, int]], window: int, page_size: int
) -> None:
    pool, tree = new_tree(window, page_size, pages=60)
    prompts = [[*tokens(3 * n), *tokens(24 - 3 * n, 100 * n)] for n in range(6)]
    locked = []
    for act, which, length in acts:
        prompt = prompts[which][: length - length % page_size]
        if act == "put" and pool.takeable_pages >= 24:
            put(pool, tree, prompt, evicted_len=length // 2 // page_size * page_size)
        elif act == "lock":
            found = tree.match_reusable(prompt)
            tree.inc_lock_ref(found.node)
            locked.append((found.node, prompt[: len(found.indices)]))
        elif act == "unlock" and locked:
            tree.dec_lock_ref(locked.pop(which % len(locked))[0])
        elif act == "evict":
            tree.evict(length)
        elif act == "evict_window":
            tree.evict_window(length)
        else:
            tree.match_reusable(prompt)
        sizes = {True: 0, False: 0}
        for node in tree.nodes():
            assert node.window_lock_ref <= node.lock_ref
            windowed = sum(1 for page in pool.window_pages_of(node.value).tolist() if page) * page_size
            sizes[node.window_lock_ref > 0] += windowed
        assert (sizes[True], sizes[False]) == (tree.window_protected_size, tree.window_evictable_size)
        for _, prefix in locked:
            assert len(tree.match_reusable(prefix).indices) == len(prefix), "a locked prefix can be built on"
    for node, _ in locked:
        tree.dec_lock_ref(node)
    tree.evict(10_000)
    assert (pool.available_pages, pool.available_window_pages) == (60, 60)
    assert tree.window_evictable_size == tree.window_protected_size == 0
