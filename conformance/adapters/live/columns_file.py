"""The live trace in columns (docs/columnar.md): in the process that writes, block by block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from kvproof.conformance.adapters.live.lines_file import LinesFile, beginning, end_line
from kvproof.conformance.traces.columnar import stream_of_batch
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX, Kind, packed
from kvproof.conformance.traces.columnar_events import EventColumns
from kvproof.conformance.traces.event_fields import fields_of_line
from kvproof.spec.trace import RECORD, End, Event

# A block is written when it is full, when the server is idle, and at the next event after so long.
SECONDS_OF_A_BLOCK = 1.0


class ColumnsFile(LinesFile):
    """Readable at any moment up to its last whole block. Events of the block that is open wait in memory."""

    def __init__(self, file: int, header_line: bytes) -> None:
        self._columns = EventColumns()
        self._blocks = 1
        self._next_seq = 0
        self._opened_at = 0.0
        # Where the last block of events begins, and how many they are.
        self._last_block: tuple[int, int] | None = None
        super().__init__(file, header_line)

    def _header_in_form(self, header_line: bytes) -> bytes:
        return beginning(COLUMNAR_SUFFIX, header_line)

    def close(self) -> None:
        with suppress(OSError):
            self._flush()
        super().close()

    def _put(self, lines: list[bytes]) -> None:
        for line in lines:
            if not len(self._columns):
                self._opened_at = time.monotonic()
            fields = fields_of_line(line)
            if fields is not None:
                self._columns.add_fields(fields)
            else:
                self._columns.add(cast(Event, RECORD.validate_json(line)))
            if self._columns.full:
                self._flush()
        if len(self._columns) and time.monotonic() - self._opened_at >= SECONDS_OF_A_BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not len(self._columns):
            return
        first_seq, events = self._columns.first_seq, len(self._columns)
        payload, begins = stream_of_batch(self._columns.take()), self._file.tell()
        self._put_contents(packed(self._blocks, Kind.EVENTS, first_seq, events, payload))
        self._blocks += 1
        self._last_block, self._next_seq = (begins, events), first_seq + events
        self.events += events

    def _put_end(self, end: End) -> None:
        self._write(packed(self._blocks, Kind.END, self._next_seq, 0, end_line(end).rstrip(b"\n")))
        self._blocks += 1

    def _end(self, reason: str, dropped: int, actions: Mapping[str, int] | None = None) -> None:
        self._flush()
        super()._end(reason, dropped, actions)

    def _take_end_back(self) -> None:
        self._blocks -= self._end_at is not None
        super()._take_end_back()

    def _make_room(self) -> None:
        """Cut off the last block of events."""
        if self._last_block is not None:
            begins, events = self._last_block
            self._cut(begins)
            self._last_block = None
            self._blocks, self._next_seq, self.events = self._blocks - 1, self._next_seq - events, self.events - events
