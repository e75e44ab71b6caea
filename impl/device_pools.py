"""The pools on the device of a run: the page table, the free lists and the window map, as tensors that kernels read and write.

What is done to them, and in which order, the books on the host decide (pools.py, window_pool.py), which know every count.
Which page it is done with, the device finds out for itself: pages are taken from its own free lists, last_loc is read in its
own page table, and the ids that a trace gets are read back from there. So a page that the device gets wrong shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from kvproof.impl.config import EngineConfig
from kvproof.impl.device_stream import DeviceStream
from kvproof.kernels.allocation import alloc_decode, alloc_extend, write_req_to_token


class FreeList:
    """The free pages of one pool, the next one to be taken first. The host knows how many there are: it counts along."""

    def __init__(self, pool_pages: int, device: str) -> None:
        self._pages = torch.arange(1, pool_pages + 1, dtype=torch.int32, device=device)
        self._first = 0

    @property
    def pages(self) -> torch.Tensor:
        """A view: taking and giving back change it."""
        return self._pages[self._first :]

    def take(self, count: int) -> torch.Tensor:
        """The next pages. A view: what is given back next overwrites it."""
        taken = self.pages[:count]
        self._first += count
        return taken

    def give_back(self, pages: torch.Tensor) -> None:
        if len(pages) > self._first:
            self._make_room(len(pages))
        self._first -= len(pages)
        self._pages[self._first : self._first + len(pages)] = pages

    def _make_room(self, count: int) -> None:
        """A list with a page that was freed twice may become longer than the pool."""
        spare = torch.zeros(count + len(self._pages), dtype=torch.int32, device=self._pages.device)
        self._pages = torch.cat((spare, self._pages))
        self._first += len(spare)


class DevicePools:
    def __init__(self, config: EngineConfig) -> None:
        device, self.page_size = config.device, config.page_size
        self.req_to_token = torch.zeros((config.rows + 1, config.row_width), dtype=torch.int32, device=device)
        self.free_pages = FreeList(config.pool_pages, device)
        self.window_free_pages = FreeList(config.window_pages or 0, device)
        self.full_to_window: torch.Tensor | None = None
        """[pool_pages + 1]: the window page of each page, 0 for none; None without a window pool."""
        if config.window:
            self.full_to_window = torch.zeros(config.pool_pages + 1, dtype=torch.int32, device=device)

    def carry_out(self, operations: Sequence[Operation], stream: DeviceStream) -> list[torch.Tensor]:
        """Do what the books did. All numbers that this takes go over in one copy; the page ids that were asked for come back,
        in the order of the operations, as tensors on the device."""
        needed = [operation.columns for operation in operations]
        uploaded = iter(stream.upload_columns(*itertools.chain.from_iterable(needed)))
        return [
            operation.run(self, *itertools.islice(uploaded, len(columns)))
            for operation, columns in zip(operations, needed, strict=True)
        ]

    def free(self, pages: torch.Tensor) -> torch.Tensor:
        """Take pages back, with the ids that the books have for them."""
        self.free_pages.give_back(pages)
        return pages

    def free_window(self, pages: torch.Tensor) -> torch.Tensor:
        """Take back the window pages of these pages, as the device's own map has them."""
        assert self.full_to_window is not None  # only a window pool frees
        window_pages = self.full_to_window[pages].long()
        self.full_to_window[pages] = 0
        self.window_free_pages.give_back(window_pages)
        return window_pages

    def heal(self, to: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """Move window pages from the pages `given` to the pages `to`."""
        assert self.full_to_window is not None  # only a window pool heals
        self.full_to_window[to] = self.full_to_window[given]
        self.full_to_window[given] = 0
        return to[:0]

    def list_free(self) -> torch.Tensor:
        return self.free_pages.pages.long()

    def list_free_window(self) -> torch.Tensor:
        return self.window_free_pages.pages.long()

    def pages_at(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The pages that the page table names at these places."""
        return torch.div(self.req_to_token[rows, positions], self.page_size, rounding_mode="floor").long()


class Operation(Protocol):
    """One thing that the books did."""

    @property
    def columns(self) -> Sequence[Sequence[int]]:
        """The numbers that the device needs: counts, places, and ids of pages that the books know from the tree."""

    def run(self, pools: DevicePools, *columns: torch.Tensor) -> torch.Tensor:
        """Do it with these columns, which are on the device now; return the page ids that it is asked to name."""


class PageOperation(NamedTuple):
    """An operation on lists of pages: a method of `DevicePools`, and its arguments."""

    method: Callable[..., torch.Tensor]
    columns: Sequence[Sequence[int]] = ()

    def run(self, pools: DevicePools, *columns: torch.Tensor) -> torch.Tensor:
        return self.method(pools, *columns)


WRITTEN, BACKED, NAMED = range(3)
"""How far a row has come in a batch."""


@dataclass
class RowBatch:
    """Rows of one batch: what the tree has is written into them, new pages are taken for them, and their pages are named.

    Each is one launch over all rows. So that the outcome is that of the order in which the books did it, a row stands in each
    of the three once at most, and they came in this order; pages are taken in the order of `backed`.
    """

    page_size: int
    written: list[tuple[int, int, list[int]]] = field(default_factory=list)
    """Row, first position, KV indices."""
    backed: list[tuple[int, int, int]] = field(default_factory=list)
    """Row, and its positions [start, end) that get KV indices."""
    is_decode: bool = False
    """They are those of rounds of decoding, not of a prefill."""
    named: list[tuple[int, int]] = field(default_factory=list)
    """Row and position whose page id is asked for."""
    window_named: list[int] = field(default_factory=list)
    """Entries of `named` that mean the window page that was taken with the page: one for each page that was taken."""
    _stages: dict[int, int] = field(default_factory=dict)

    def admits(self, row: int, stage: int, is_decode: bool) -> bool:
        if stage == BACKED and self.backed and is_decode != self.is_decode:
            return False
        return self._stages.get(row, -1) < stage

    def note(self, row: int, stage: int, is_decode: bool) -> None:
        self._stages[row] = stage
        if stage == BACKED:
            self.is_decode = is_decode

    @property
    def columns(self) -> Sequence[Sequence[int]]:
        fresh = self._fresh()
        return (
            [row for row, _, _ in self.written],
            [start for _, start, _ in self.written],
            [start + len(indices) for _, start, indices in self.written],
            [index for _, _, indices in self.written for index in indices],
            *([entry[part] for entry in self.backed] for part in range(3)),
            *([place[part] for place in fresh] for part in range(2)),
            *([place[part] for place in self.named] for part in range(2)),
            self.window_named,
        )

    def run(self, pools: DevicePools, *columns: torch.Tensor) -> torch.Tensor:
        if self.written:
            write_req_to_token(pools.req_to_token, *columns[:4])
        window_pages = self._back(pools, *columns[4:9]) if self.backed else None
        rows, positions, in_window = columns[9:]
        pages = pools.pages_at(rows, positions)
        if window_pages is not None and self.window_named:
            pages[in_window] = window_pages.long()
        return pages

    def _back(
        self,
        pools: DevicePools,
        rows: torch.Tensor,
        starts: torch.Tensor,
        ends: torch.Tensor,
        fresh_rows: torch.Tensor,
        fresh_positions: torch.Tensor,
    ) -> torch.Tensor | None:
        """Take pages for positions [starts, ends), and write their KV indices into the page table; the window pages taken."""
        free_pages = pools.free_pages.take(len(fresh_rows))
        last_loc = pools.req_to_token[rows, (starts - 1).clamp(min=0)]
        tokens = [end - start for _, start, end in self.backed]
        if self.is_decode and min(tokens) == max(tokens):
            kv_indices, _ = alloc_decode(free_pages, ends, last_loc, self.page_size, tokens[0])
        else:
            kv_indices, _ = alloc_extend(free_pages, starts, ends, last_loc, self.page_size, sum(tokens))
        write_req_to_token(pools.req_to_token, rows, starts, ends, kv_indices)
        if pools.full_to_window is None:
            return None
        window_pages = pools.window_free_pages.take(len(fresh_rows))
        pools.full_to_window[pools.pages_at(fresh_rows, fresh_positions)] = window_pages
        return window_pages

    def _fresh(self) -> list[tuple[int, int]]:
        """Where the new pages begin."""
        return [
            (row, position)
            for row, start, end in self.backed
            for position in first_positions(start, end, self.page_size)
        ]


def first_positions(start: int, end: int, page_size: int) -> range:
    """Of the pages that positions [start, end) need when those of [0, start) are there."""
    return range(-(-start // page_size) * page_size, end, page_size)
