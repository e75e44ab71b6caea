"""Pages in pairs: what is handed out, handed back, and handed over between the two pools."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.impl.page_moves import Moved
from kvproof.impl.pools import OutOfPages
from kvproof.impl.window_pool import WindowAllocator


def allocator(pool_pages: int = 8, window_pages: int = 4, page_size: int = 4) -> WindowAllocator:
    return WindowAllocator(pool_pages, window_pages, page_size, window=4)


def take(pool: WindowAllocator) -> Moved:
    return pool.moves.take()


def test_each_page_brings_one_of_the_window_pool() -> None:
    pool = allocator()
    indices = pool.alloc_extend(0, 9, -1)
    assert take(pool) == Moved(alloc=(1, 2, 3), window_alloc=(1, 2, 3))
    assert pool.window_pages_of(indices).tolist() == [1, 2, 3]
    assert pool.full_to_window.tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0]
    assert (pool.available_pages, pool.available_window_pages, pool.takeable_pages) == (5, 1, 1)


def test_a_token_inside_a_page_takes_none_of_either_pool() -> None:
    pool = allocator()
    first = int(pool.alloc_extend(0, 1, -1)[0])
    take(pool)
    assert pool.alloc_decode(2, first) == first + 1 and take(pool) == Moved()


def test_no_page_is_taken_when_the_window_pool_is_short() -> None:
    pool = allocator(window_pages=2)
    with pytest.raises(OutOfPages, match="3 pages asked for, 2 free in the window pool"):
        pool.alloc_extend(0, 12, -1)
    assert pool.available_pages == 8 and take(pool) == Moved()


def test_a_free_returns_both_pages_and_a_tombstone_only_its_own() -> None:
    pool = allocator()
    indices = pool.alloc_extend(0, 12, -1)
    pool.free_window(indices[:4])
    take(pool)
    pool.free(indices)
    assert take(pool) == Moved(free=(1, 2, 3), window_free=(2, 3))
    assert pool.window_free_list() == (1, 2, 3, 4) and not pool.full_to_window.any()


def test_what_left_the_window_keeps_its_page_of_the_full_pool() -> None:
    pool = allocator()
    indices = pool.alloc_extend(0, 12, -1)
    take(pool)
    pool.free_window(indices[:8])
    assert take(pool) == Moved(window_free=(1, 2))
    assert pool.available_pages == 5 and pool.window_pages_of(indices).tolist() == [0, 0, 3]
    pool.free_window(indices[:8])
    assert take(pool) == Moved()


def test_only_tombstones_take_a_duplicates_window_page() -> None:
    pool = allocator()
    held, duplicates = pool.alloc_extend(0, 8, -1), pool.alloc_extend(0, 8, -1)
    pool.free_window(held[:4])
    assert pool.heal(held, duplicates) == 1
    assert pool.window_pages_of(held).tolist() == [3, 2] and pool.window_pages_of(duplicates).tolist() == [0, 4]
    assert pool.heal(held, held) == 0
    take(pool)
    pool.free(duplicates)
    assert take(pool) == Moved(free=(3, 4), window_free=(4,))


@given(st.lists(st.tuples(st.sampled_from(("take", "free", "window", "heal")), st.integers(0, 7)), max_size=40))
def test_every_window_page_is_free_or_behind_exactly_one_page(acts: list[tuple[str, int]]) -> None:
    pool = allocator(pool_pages=12, window_pages=7, page_size=2)
    held: list[np.ndarray] = []
    for act, choice in acts:
        if act == "take" and pool.takeable_pages >= 1 + choice % 3:
            held.append(pool.alloc_extend(0, 2 * (1 + choice % 3), -1))
        elif act == "free" and held:
            pool.free(held.pop(choice % len(held)))
        elif act == "window" and held:
            pool.free_window(held[choice % len(held)][: 2 * (choice % 3)])
        elif act == "heal" and len(held) > 1:
            length = min(len(held[0]), len(held[1]))
            pool.heal(held[0][:length], held[1][:length])
        mapped = [page for page in pool.full_to_window.tolist() if page]
        assert sorted([*mapped, *pool.window_free_list()]) == list(range(1, 8))
        assert all(pool.full_to_window[page] == 0 for page in pool.free_list())
