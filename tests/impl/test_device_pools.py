"""The device's tables after what the books did: batches keep the order of the books, whatever they put together."""

from __future__ import annotations

import random

import pytest
import torch

from kvproof.impl.config import EngineConfig
from kvproof.impl.device import Device
from kvproof.impl.device_log import DeviceLog
from kvproof.impl.device_pools import FreeList
from kvproof.impl.pools import KVAllocator, RowPool
from kvproof.impl.window_pool import WindowAllocator


def test_a_free_list_hands_out_what_came_back_last_and_grows_when_a_page_comes_back_twice() -> None:
    free = FreeList(3, "cpu")
    assert free.take(2).tolist() == [1, 2]
    free.give_back(torch.tensor([2]))
    free.give_back(torch.tensor([1]))
    assert free.pages.tolist() == [1, 2, 3]
    free.give_back(torch.tensor([2, 3]))
    assert free.pages.tolist() == [2, 3, 1, 2, 3] and free.pages.dtype == torch.int32
    assert free.take(4).tolist() == [2, 3, 1, 2]


class Books:
    """Rows of a pool on the host, and a device that learns what is done to them."""

    def __init__(self, page_size: int, window: bool, pages: int = 60, rows: int = 6, width: int = 40) -> None:
        config = EngineConfig(
            page_size=page_size, pool_pages=pages, rows=rows, row_width=width, pools="device", window=3 if window else 0
        )
        self.device = Device(config, None)
        self.pool = WindowAllocator(pages, config.window_pages or 0, page_size, 3) if window else None
        self.allocator = self.pool or KVAllocator(pages, page_size)
        self.rows = RowPool(rows, width, "fifo")
        self.allocator.device = self.rows.device = self.device.log
        self.lengths = [0] * (rows + 1)

    @property
    def log(self) -> DeviceLog:
        return self.device.log

    def back(self, row: int, tokens: int, *, is_decode: bool) -> None:
        start, entries = self.lengths[row], self.rows.table[row]
        end = min(start + tokens, len(entries))
        if end > start and self.allocator.pages_for(start, end) <= self.allocator.takeable_pages:
            last_loc = int(entries[start - 1]) if start else -1
            entries[start:end] = self.allocator.alloc_extend(start, end, last_loc)
            self.log.backed(row, start, end, is_decode=is_decode)
            self.lengths[row] = end

    def free(self, row: int, keep_pages: int) -> None:
        kept = min(keep_pages * self.allocator.page_size, self.lengths[row])
        self.allocator.free(self.rows.read(row, kept, self.lengths[row]))
        self.lengths[row] = kept

    def share(self, row: int, other: int) -> None:
        """A row begins with the first page of another one, as with a page of the tree."""
        if row != other and self.lengths[other] >= self.allocator.page_size:
            self.rows.write(row, 0, self.rows.read(other, 0, self.allocator.page_size))

    def evict(self, row: int) -> None:
        if self.pool is not None and self.lengths[row]:
            self.pool.free_window(self.rows.read(row, 0, self.allocator.page_size))

    def require_the_same(self) -> None:
        pools = self.device.pools
        assert pools.req_to_token.tolist() == self.rows.table.tolist()
        assert pools.free_pages.pages.tolist() == self.allocator._free_pages[::-1]
        if self.pool is not None and pools.full_to_window is not None:
            assert pools.full_to_window.tolist() == self.pool.full_to_window.tolist()
            assert pools.window_free_pages.pages.tolist() == self.pool._free_window_pages[::-1]


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(8))
def test_the_device_has_what_the_books_have_however_often_it_catches_up(
    seed: int, page_size: int, window: bool
) -> None:
    chance = random.Random(seed)
    books = Books(page_size, window)
    for _ in range(120):
        row, act = chance.randint(1, 6), chance.random()
        if act < 0.35:
            books.back(row, 1, is_decode=True)
        elif act < 0.55:
            books.back(row, chance.randint(1, 3 * page_size), is_decode=chance.random() < 0.3)
        elif act < 0.7:
            books.free(row, chance.randint(0, 2))
        elif act < 0.8:
            books.share(row, chance.randint(1, 6))
        elif act < 0.9:
            books.evict(row)
        if chance.random() < 0.15:
            books.device.catch_up()
            books.require_the_same()
    books.device.catch_up()
    books.require_the_same()


def test_a_page_that_takes_over_a_window_page_has_it_on_the_device_too() -> None:
    books = Books(4, window=True)
    for row in (1, 2):
        books.back(row, 8, is_decode=False)
    books.evict(1)
    healed = books.pool.heal(*(books.rows.read(row, 0, 8) for row in (1, 2)))
    books.device.catch_up()
    books.require_the_same()
    assert healed == 1
    assert books.device.pools.full_to_window[:5].tolist() == [0, 3, 2, 0, 4]
