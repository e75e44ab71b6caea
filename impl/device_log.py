"""What the books did since the device last caught up, in order: the books write here, and the device carries it out.

Allocations of one batch become one launch, see `RowBatch`. A page id is not known before the device was there, so events
get tickets instead: the n-th page id that was asked for gets ticket n, and the trace ring brings the ids in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.impl.device_pools import (
    BACKED,
    NAMED,
    WRITTEN,
    DevicePools,
    Operation,
    PageOperation,
    RowBatch,
    first_positions,
)
from kvproof.impl.page_moves import PageMoves, Pages


class DeviceLog:
    def __init__(self, page_size: int, *, has_window: bool, tells: bool) -> None:
        self.moves = PageMoves() if tells else None
        """Tickets of the pages that moved; None when nobody listens, and then no page id is asked for."""
        self.tickets = 0
        """How many page ids were asked for."""
        self._page_size = page_size
        self._has_window = has_window
        self._operations: list[Operation] = []

    def take(self) -> list[Operation]:
        operations, self._operations = self._operations, []
        return operations

    # -- what the books tell --

    def written(self, row: int, start: int, kv_indices: list[int]) -> None:
        """Positions from `start` on name pages that the tree has."""
        self._batch(row, WRITTEN).written.append((row, start, kv_indices))

    def backed(self, row: int, start: int, end: int, *, is_decode: bool) -> None:
        """Pages were taken for positions [start, end), whose KV indices were written."""
        batch = self._batch(row, BACKED, is_decode)
        batch.backed.append((row, start, end))
        fresh = first_positions(start, end, self._page_size)
        if self.moves is not None:
            self.moves.alloc += self._name(batch, row, fresh)
            if self._has_window:
                self.moves.window_alloc += self._name(batch, row, fresh, of_window=True)

    def freed(self, pages: list[int]) -> None:
        self._operations.append(PageOperation(DevicePools.free, (pages,)))
        tickets = self._tickets(len(pages))
        if self.moves is not None:
            self.moves.free += tickets

    def freed_window(self, pages: list[int]) -> None:
        """The window pages of these pages of the full pool."""
        if not pages:
            return
        self._operations.append(PageOperation(DevicePools.free_window, (pages,)))
        tickets = self._tickets(len(pages))
        if self.moves is not None:
            self.moves.window_free += tickets

    def healed(self, to: list[int], given: list[int]) -> None:
        if to:
            self._operations.append(PageOperation(DevicePools.heal, (to, given)))

    # -- what events ask for --

    def leading_pages(self, row: int, pages: int) -> Pages:
        """Tickets of the first pages of a row."""
        if self.moves is None or not pages:
            return ()
        positions = range(0, pages * self._page_size, self._page_size)
        return tuple(self._name(self._batch(row, NAMED), row, positions))

    def free_list(self, length: int, *, of_window: bool = False) -> Pages:
        """Tickets of every free page; the books know how many there are."""
        if self.moves is None:
            return ()
        self._operations.append(PageOperation(DevicePools.list_free_window if of_window else DevicePools.list_free))
        return tuple(self._tickets(length))

    def _name(self, batch: RowBatch, row: int, positions: Sequence[int], *, of_window: bool = False) -> range:
        if of_window:
            batch.window_named += range(len(batch.named), len(batch.named) + len(positions))
        batch.named += [(row, position) for position in positions]
        return self._tickets(len(positions))

    def _tickets(self, count: int) -> range:
        self.tickets += count
        return range(self.tickets - count, self.tickets)

    def _batch(self, row: int, stage: int, is_decode: bool = False) -> RowBatch:
        """The batch that this still belongs to, or a new one."""
        last = self._operations[-1] if self._operations else None
        if not isinstance(last, RowBatch) or not last.admits(row, stage, is_decode):
            last = RowBatch(self._page_size)
            self._operations.append(last)
        last.note(row, stage, is_decode)
        return last
