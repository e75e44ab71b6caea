"""The two pools: KV pages, and rows of the page table.

Page 0 and row 0 are padding and never handed out. The KV index of position i of a row is page * page_size + i mod
page_size; `req_to_token[row, i]` holds it. The host keeps its books in numpy: one element of a torch tensor costs it
twenty times as much.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
import torch

from kvproof.impl.config import RowOrder
from kvproof.impl.device_log import DeviceLog
from kvproof.impl.page_moves import PageMoves

KVIndices = npt.NDArray[np.int32]
NO_INDICES: KVIndices = np.empty(0, dtype=np.int32)


class OutOfPages(RuntimeError):
    """An allocation asked for more pages than are free. The scheduler makes room first, so this is its mistake."""


class OutOfRows(RuntimeError):
    """A row was asked for while none was free. The scheduler admits no more than fit, so this is its mistake."""


class KVAllocator:
    """Hands out whole pages and takes them back.

    Like the allocator of a server it keeps no owners and detects no double free: a page that is freed twice is handed
    out twice. `moves` sees every page that passes; it is None when nobody asks. In a run whose pools are on the device,
    what is done here is done there as well: `device` records it.
    """

    device: DeviceLog | None = None

    def __init__(self, pool_pages: int, page_size: int, *, keeps_moves: bool = True) -> None:
        self.pool_pages = pool_pages
        self.page_size = page_size
        self.moves = PageMoves() if keeps_moves else None
        self._free_pages = list(range(pool_pages, 0, -1))
        self._offsets = np.arange(page_size, dtype=np.int32)

    @property
    def available_pages(self) -> int:
        return len(self._free_pages)

    @property
    def takeable_pages(self) -> int:
        """How many pages can be taken: with a window pool, no more than there are free in both."""
        return self.available_pages

    def free_list(self) -> tuple[int, ...]:
        """Every free page, as often as it is listed, in ascending order."""
        return tuple(sorted(self._free_pages))

    def pages_for(self, start: int, end: int) -> int:
        """New pages that positions [start, end) need when the pages of [0, start) are there."""
        return -(-end // self.page_size) - -(-start // self.page_size)

    def alloc_extend(self, prefix_len: int, seq_len: int, last_loc: int) -> KVIndices:
        """KV indices of positions [prefix_len, seq_len). `last_loc` is the KV index of position prefix_len - 1.

        The page that position prefix_len - 1 lies in is filled up first, so a partly filled page is continued.
        """
        missing = seq_len - prefix_len
        room = min(-prefix_len % self.page_size, missing)
        continued = np.arange(last_loc + 1, last_loc + 1 + room, dtype=np.int32)
        pages = self._take(self.pages_for(prefix_len, seq_len))
        fresh = (np.array(pages, dtype=np.int32)[:, None] * self.page_size + self._offsets).reshape(-1)
        return np.concatenate((continued, fresh[: missing - room]))

    def alloc_decode(self, seq_len: int, last_loc: int) -> int:
        """KV index of position seq_len - 1. `last_loc` is the KV index of the position before it."""
        if (seq_len - 1) % self.page_size:
            return last_loc + 1
        [page] = self._take(1)
        return page * self.page_size

    def free(self, kv_indices: KVIndices) -> None:
        """Return the pages that these KV indices lie in: whole pages, each once per call."""
        if len(kv_indices) == 0:
            return
        pages: list[int] = np.unique(kv_indices // self.page_size).tolist()
        if self.moves is not None:
            self.moves.free.extend(pages)
        if self.device is not None:
            self.device.freed(pages)
        self._free_pages.extend(reversed(pages))

    def _take(self, count: int) -> list[int]:
        if count > len(self._free_pages):
            raise OutOfPages(f"{count} pages asked for, {len(self._free_pages)} free")
        pages = [self._free_pages.pop() for _ in range(count)]
        if self.moves is not None:
            self.moves.alloc.extend(pages)
        return pages


class RowPool:
    """The page table `req_to_token` and its free rows. `fifo` reuses the row that was free for the longest time."""

    device: DeviceLog | None = None
    """Told of every write of indices that somebody has already, where the pools are on the device."""

    def __init__(self, rows: int, row_width: int, order: RowOrder) -> None:
        self.req_to_token = torch.zeros((rows + 1, row_width), dtype=torch.int32)
        self.table: KVIndices = self.req_to_token.numpy()
        """`req_to_token` as a NumPy array: one memory."""
        self._order = order
        self._free_slots = deque(range(1, rows + 1))

    @property
    def available_rows(self) -> int:
        return len(self._free_slots)

    def free_list(self) -> tuple[int, ...]:
        return tuple(sorted(self._free_slots))

    def alloc(self) -> int:
        if not self._free_slots:
            raise OutOfRows("all rows are taken")
        return self._free_slots.popleft() if self._order == "fifo" else self._free_slots.pop()

    def free(self, row: int) -> None:
        self._free_slots.append(row)

    def read(self, row: int, start: int, end: int) -> KVIndices:
        """A copy of the KV indices of positions [start, end): the row may be overwritten while the copy is in use."""
        return self.table[row, start:end].copy()

    def write(self, row: int, start: int, kv_indices: KVIndices) -> None:
        """Let positions from `start` on name pages that are not newly taken: those of the tree."""
        if len(kv_indices) == 0:
            return
        self.table[row, start : start + len(kv_indices)] = kv_indices
        if self.device is not None:
            self.device.written(row, start, kv_indices.tolist())
