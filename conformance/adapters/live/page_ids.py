"""Page ids out of tensors of KV indices, without ever making the scheduler wait for the device.

On a CPU the ids are there at once. On a GPU the indices are copied into pinned memory behind the work that is queued
already; the list that was handed out stays empty until `settle` finds that the copy has arrived. So an event may hold
lists that fill later, and whoever writes it asks `settle` first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass
class _Copy:
    """One copy on its way, or, where nothing was to be awaited, one whose turn has not come yet."""

    indices: Any
    arrived: Any
    into: list[int]
    once: bool
    set_only: bool


class PageIds:
    """`device_is_host`: the KV indices lie in host memory, so reading them waits for nothing."""

    def __init__(self, page_size: int, *, device_is_host: bool) -> None:
        self._page_size = page_size
        self.device_is_host = device_is_host
        self._copies: deque[_Copy] = deque()
        self.started = 0
        """copies that were begun so far; `settled` reaches it when all ids are there"""
        self.settled = 0

    def read(
        self, indices: Any, into: list[int] | None = None, *, once: bool = False, set_only: bool = False
    ) -> list[int]:
        """The page of each index, appended to `into`; `once`: each page of this call a single time, in order.

        `set_only`: the indices are entries of a map, whose 0 says that there is none; such are left out.
        """
        pages = [] if into is None else into
        if self.device_is_host:
            self._append(indices, pages, once, set_only)
        else:
            self._begin(indices, pages, once, set_only)
        return pages

    def settle(self, *, wait: bool = False) -> int:
        """Fill the lists whose copies have arrived, in the order in which they were begun; how many are filled in all."""
        while self._copies and (wait or self._copies[0].arrived.query()):
            copy = self._copies.popleft()
            if wait:
                copy.arrived.synchronize()
            self._append(copy.indices, copy.into, copy.once, copy.set_only)
            self.settled += 1
        return self.settled

    def _begin(self, indices: Any, into: list[int], once: bool, set_only: bool) -> None:
        import torch

        pinned = torch.empty(indices.shape, dtype=indices.dtype, pin_memory=True)
        pinned.copy_(indices, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self._copies.append(_Copy(pinned, arrived, into, once, set_only))
        self.started += 1

    def _append(self, indices: Any, into: list[int], once: bool, set_only: bool) -> None:
        size, named = self._page_size, indices.tolist()
        if set_only:
            named = [index for index in named if index]
        pages = named if size == 1 else [index // size for index in named]
        into.extend(dict.fromkeys(pages) if once else pages)
