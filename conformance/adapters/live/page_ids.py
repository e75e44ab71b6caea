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
    indices: Any
    into: list[int]
    once: bool
    set_only: bool


class PageIds:
    """`device_is_host`: the KV indices lie in host memory, so reading them waits for nothing."""

    def __init__(self, page_size: int, *, device_is_host: bool) -> None:
        self._page_size = page_size
        self._device = None if device_is_host else DeviceCopies()
        self._copies: deque[_Copy] = deque()
        # How many copies were begun when it was made, and the events of the device behind them.
        self._marks: deque[tuple[int, list[Any]]] = deque()
        self._started = self._marked = 0
        self.settled = 0
        """copies whose ids are in their lists"""

    def read(
        self, indices: Any, into: list[int] | None = None, *, once: bool = False, set_only: bool = False
    ) -> list[int]:
        """The page of each index, appended to `into`; `once`: each page of this call a single time, in order.

        `set_only`: the indices are entries of a map, whose 0 says that there is none; such are left out.
        """
        pages = [] if into is None else into
        if self._device is None:
            self._append(_Copy(indices, pages, once, set_only))
        else:
            self._copies.append(_Copy(self._device.begin(indices), pages, once, set_only))
            self._started += 1
        return pages

    def mark(self) -> int:
        """Behind what was read so far: how many copies must have settled for it to be complete."""
        if self._device is not None and self._started > self._marked:
            self._marks.append((self._started, self._device.events()))
            self._marked = self._started
        return self._marked

    def settle(self, *, wait: bool = False) -> int:
        """Fill the lists whose copies have arrived up to a mark, in the order in which they were begun; how many are filled in
        all. `wait`: for all that were begun."""
        if wait:
            self.mark()
        while self._marks and (wait or all(event.query() for event in self._marks[0][1])):
            started, events = self._marks.popleft()
            for event in events:
                event.synchronize()
            while self.settled < started:
                self._append(self._copies.popleft())
                self.settled += 1
        return self.settled

    def _append(self, copy: _Copy) -> None:
        size, named = self._page_size, copy.indices.tolist()
        if copy.set_only:
            named = [index for index in named if index]
        pages = named if size == 1 else [index // size for index in named]
        copy.into.extend(dict.fromkeys(pages) if copy.once else pages)


class DeviceCopies:
    """Copies into pinned memory. An event of the device costs as much as a copy (10 us on an H100), so one serves many copies."""

    def __init__(self) -> None:
        # Handle -> stream, of all that a copy was queued on; those with copies that no event is behind.
        self._streams: dict[int, Any] = {}
        self._used: set[int] = set()

    def begin(self, indices: Any) -> Any:
        import torch

        handle = torch._C._cuda_getCurrentRawStream(indices.device.index)  # `current_stream` takes 5 us
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.current_stream(indices.device)
        self._used.add(handle)
        pinned = torch.empty(indices.shape, dtype=indices.dtype, pin_memory=True)
        pinned.copy_(indices, non_blocking=True)
        return pinned

    def events(self) -> list[Any]:
        """Behind all copies that were begun since the last call; one for each stream."""
        used, self._used = self._used, set()
        return [self._streams[handle].record_event() for handle in used]
