"""Events whose page ids are on the device: they go through the trace ring, and an event is reported when its page ids have come.

Nothing here waits for the device during a run: each time the device caught up, its page ids are appended to the ring,
and what has arrived of earlier ones is handed on. Only a ring that would overflow is waited for: a trace with a hole in it
would judge nothing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence

import torch

from kvproof.impl.config import EngineConfig
from kvproof.impl.device_log import DeviceLog
from kvproof.impl.device_stream import DeviceStream
from kvproof.impl.observe import Event, Observer
from kvproof.impl.page_moves import Pages
from kvproof.kernels.trace_ring import Drained, Record, StepRecords, TraceRing

RING_RECORDS = 4096
LEAST_RING_PAGES = 2**15


def ring_pages(config: EngineConfig) -> int:
    """An event moves a pool at most, or lists one; a few of those may be under way at a time."""
    return LEAST_RING_PAGES + 4 * (config.pool_pages + (config.window_pages or 0))


class RingOverflow(RuntimeError):
    """The trace ring cannot hold what an event moved, or lost what was not drained: take a smaller pool."""


class RingEvents:
    """An observer between the reporter, whose events hold tickets for page ids, and the one who is to get the ids."""

    def __init__(self, observer: Observer, log: DeviceLog, config: EngineConfig) -> None:
        self.ring = TraceRing(RING_RECORDS, ring_pages(config), config.device)
        self._observer = observer
        self._log = log
        self._told: list[Event] = []
        """Events that are not in the ring yet, and how many page ids each of them has."""
        self._counts: list[int] = []
        self._tickets = 0
        """Page ids of the events that came in."""
        self._left_over: list[torch.Tensor] = []
        """Page ids of which no event came in yet."""
        self._under_way: deque[tuple[Event, int]] = deque()
        self._arrived = 0
        """Page ids that came, and those whose event did not come yet: draft pages are reported at `verify`."""
        self._ids: dict[int, int] = {}
        self._kinds: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        self._told.append(event)
        self._counts.append(self._log.tickets - self._tickets)
        self._tickets = self._log.tickets

    def append(self, named: Sequence[torch.Tensor], stream: DeviceStream) -> None:
        """Put the events that came in since the last call into the ring, with the page ids that the device has found for it."""
        self._left_over += named
        if self._told:
            pages = torch.cat(self._left_over) if self._left_over else self.ring.page_ring[:0]
            for events, counts in self._fitting_parts():
                self._make_room(len(events), sum(counts))
                self.ring.append(self._records(events, counts, pages, stream))
                self._under_way += zip(events, counts, strict=True)
                pages = pages[sum(counts) :]
            self._left_over = [pages]
            self._told, self._counts = [], []
        self._hand_on(self.ring.drain())

    def settle(self) -> None:
        """Wait for everything that was appended, and hand it on."""
        self._hand_on(self.ring.drain(wait=True))

    def _fitting_parts(self) -> list[tuple[list[Event], list[int]]]:
        """The events that came in, in parts that an empty ring can hold."""
        parts: list[tuple[list[Event], list[int]]] = [([], [])]
        for event, count in zip(self._told, self._counts, strict=True):
            events, counts = parts[-1]
            if events and (len(events) == len(self.ring.ring) or sum(counts) + count > len(self.ring.page_ring)):
                events, counts = [], []
                parts.append((events, counts))
            events.append(event)
            counts.append(count)
        return parts

    def _make_room(self, records: int, pages: int) -> None:
        if pages > len(self.ring.page_ring):
            raise RingOverflow(
                f"{pages} page ids moved in one event, but the trace ring holds {len(self.ring.page_ring)}"
            )
        waiting = sum(count for _, count in self._under_way)
        if len(self._under_way) + records > len(self.ring.ring) or waiting + pages > len(self.ring.page_ring):
            self.settle()

    def _records(
        self, events: list[Event], counts: list[int], pages: torch.Tensor, stream: DeviceStream
    ) -> StepRecords:
        kinds = [self._kinds.setdefault(event.action, len(self._kinds)) for event in events]
        lengths = [
            [event.after.get(name, 0) for event in events]
            for name in ("kv_committed_len", "kv_allocated_len", "cache_protected_len")
        ]
        rows = [event.row or 0 for event in events]
        kinds_there, rows_there, committed, allocated, protected, counts_there = stream.upload_columns(
            kinds, rows, *lengths, counts
        )
        step = events[0].step
        return StepRecords(kinds_there, step, rows_there, committed, allocated, protected, counts_there, pages)

    def _hand_on(self, drained: Drained) -> None:
        if drained.dropped_records or drained.dropped_pages:
            raise RingOverflow(
                f"the trace ring was overtaken: {drained.dropped_records} events and {drained.dropped_pages} page ids are lost"
            )
        for record in drained.records:
            event, _ = self._under_way.popleft()
            self._require_the_same(event, record)
            for page in record.pages or ():
                self._ids[self._arrived] = page
                self._arrived += 1
            self._observer.on_event(self._with_page_ids(event))

    def _require_the_same(self, event: Event, record: Record) -> None:
        expected = self._kinds[event.action], event.step, event.row or 0
        if record[:3] != expected:
            raise RingOverflow(
                f"the trace ring brought record {record[:3]} (kind, step, row) where {expected} was appended"
            )

    def _with_page_ids(self, event: Event) -> Event:
        return dataclasses.replace(
            event,
            alloc=self._redeem(event.alloc),
            free=self._redeem(event.free),
            shared=None if event.shared is None else self._redeem(event.shared),
            window_alloc=self._redeem(event.window_alloc),
            window_free=self._redeem(event.window_free),
            free_list=self._redeem_sorted(event.free_list),
            window_free_list=self._redeem_sorted(event.window_free_list),
        )

    def _redeem(self, tickets: Pages) -> Pages:
        return tuple(self._ids.pop(ticket) for ticket in tickets)

    def _redeem_sorted(self, tickets: Pages | None) -> Pages | None:
        return None if tickets is None else tuple(sorted(self._redeem(tickets)))
