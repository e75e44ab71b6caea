from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.impl.page_moves import Moved
from kvproof.impl.pools import KVAllocator, OutOfPages, OutOfRows, RowPool


def test_page_0_is_never_handed_out_and_pages_come_in_order() -> None:
    allocator = KVAllocator(pool_pages=3, page_size=4)
    assert allocator.alloc_extend(0, 12, -1).tolist() == list(range(4, 16))
    with pytest.raises(OutOfPages):
        allocator.alloc_extend(0, 1, -1)


@given(page_size=st.integers(1, 9), prefix_len=st.integers(0, 30), extend_len=st.integers(1, 30))
def test_an_extend_continues_the_partly_filled_page(page_size: int, prefix_len: int, extend_len: int) -> None:
    allocator = KVAllocator(pool_pages=80, page_size=page_size)
    head = allocator.alloc_extend(0, prefix_len, -1)
    tail = allocator.alloc_extend(prefix_len, prefix_len + extend_len, int(head[-1]) if prefix_len else -1)
    row = np.concatenate((head, tail)).tolist()
    assert len(row) == prefix_len + extend_len == len(set(row))
    assert [index % page_size for index in row] == [position % page_size for position in range(len(row))]
    assert all(
        len({index // page_size for index in row[i : i + page_size]}) == 1 for i in range(0, len(row), page_size)
    )
    assert 80 - allocator.available_pages == -(-len(row) // page_size)


def test_a_decode_takes_a_page_only_when_the_last_one_is_full() -> None:
    allocator = KVAllocator(pool_pages=4, page_size=2)
    last = int(allocator.alloc_extend(0, 1, -1)[-1])
    second = allocator.alloc_decode(2, last)
    third = allocator.alloc_decode(3, second)
    assert (second, third, allocator.available_pages) == (last + 1, 4, 2)


def test_a_free_returns_whole_pages_each_once() -> None:
    allocator = KVAllocator(pool_pages=4, page_size=4)
    indices = allocator.alloc_extend(0, 12, -1)
    allocator.moves.take()
    allocator.free(indices[5:10])
    assert allocator.moves.take() == Moved(free=(2, 3))
    assert allocator.free_list() == (2, 3, 4)


def test_a_page_freed_twice_is_listed_twice_as_in_a_server() -> None:
    allocator = KVAllocator(pool_pages=2, page_size=4)
    indices = allocator.alloc_extend(0, 4, -1)
    allocator.free(indices)
    allocator.free(indices)
    assert allocator.free_list() == (1, 1, 2)


def test_moves_are_told_once() -> None:
    allocator = KVAllocator(pool_pages=2, page_size=4)
    allocator.alloc_extend(0, 5, -1)
    assert allocator.moves.take() == Moved(alloc=(1, 2))
    assert allocator.moves.take() == Moved()


def test_fifo_reuses_the_row_that_was_free_for_the_longest_time_and_lifo_the_last_one() -> None:
    fifo, lifo = RowPool(3, 8, "fifo"), RowPool(3, 8, "lifo")
    for rows in (fifo, lifo):
        taken = rows.alloc()
        assert taken != 0
        rows.free(taken)
    assert (fifo.alloc(), lifo.alloc()) == (2, 3)


def test_no_row_is_left_when_all_are_taken() -> None:
    rows = RowPool(1, 8, "fifo")
    rows.alloc()
    with pytest.raises(OutOfRows, match="all rows are taken"):
        rows.alloc()


def test_a_read_is_a_copy() -> None:
    rows = RowPool(1, 8, "fifo")
    rows.write(1, 0, np.array([4, 5, 6]))
    seen = rows.read(1, 1, 3)
    rows.write(1, 0, np.array([9, 9, 9]))
    assert seen.tolist() == [5, 6]
