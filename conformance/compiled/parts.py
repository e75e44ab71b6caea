"""A trace in lines, in parts: scanned lines where they are plain, record batches of events read one by one where they are not.

What is not plain is read as ever: the same errors at the same lines, behind what stands before them. After a line that is not
plain one event is read in this way, and each time twice as many, before the scanner is tried again: a trace full of such lines
takes little longer than without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kvproof.conformance.compiled.lines import ScannedLines
from kvproof.conformance.traces import json_lines
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.json_lines import Place, TraceReader
from kvproof.spec.trace import End, Event

AT_ONCE = 2**20
"""Bytes of lines that are scanned at once: what comes of them stays in the cache until it is judged."""
MOST_ONE_BY_ONE = 2**12
"""Events that are read one by one before the scanner is tried again."""
PLAIN_ENOUGH = 64
"""Scanned events for each that was read by itself after which the next stretch is one event long again."""


class LinesOfTrace:
    """The lines of a trace: many at once, or one after the other."""

    def __init__(self, reader: TraceReader) -> None:
        self.text = b""
        self.at = 0
        self.line = reader.first_line
        """Number of the next line."""
        self._reader = reader
        self._pieces = reader.pieces(AT_ONCE)
        self._is_read = False

    @property
    def has_a_whole_one(self) -> bool:
        return self.text.find(b"\n", self.at) >= 0

    def fill(self) -> bool:
        """Read on until there is a whole line, or more than a line may have; False: nothing is left."""
        while not self._is_read and not self.has_a_whole_one and len(self.text) - self.at <= json_lines.LONGEST_RECORD:
            piece = next(self._pieces, b"")
            self._is_read = not piece
            self.text, self.at = self.text[self.at :] + piece, 0
        return self.at < len(self.text)

    def take(self, end: int, lines: int) -> None:
        """Go on behind so many lines, which end there."""
        self._reader.looked_at(end - self.at)
        self.at = end
        self.line += lines

    def one_by_one(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line, as the reader gives them."""
        while self.fill():
            end = self.text.find(b"\n", self.at) + 1 or len(self.text)
            if end - self.at > json_lines.LONGEST_RECORD:
                raise self._reader.too_long(self.line)
            number, line = self.line, self.text[self.at : end]
            self.take(end, 1)
            yield number, line


class PartsOfLines:
    """The events of a trace, each once and in order. What is wrong with a record is raised behind the events before it."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._order = reader.start_over()
        self._lines = LinesOfTrace(reader)
        self._stretch = 1
        self._is_over = False
        self._stopped: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        lines = self._lines
        while not self._is_over and lines.fill():
            scanned = ScannedLines.of(lines.text, lines.at)
            if len(scanned) and self._order.is_next(*scanned.span):
                self._order.after(*scanned.span)
                lines.take(scanned.end, len(scanned))
                next_seq = scanned.first_seq + len(scanned)
                self._reader.place = Place(self._reader.position, lines.line, 0, next_seq, self._order.events)
                yield scanned
                if len(scanned) >= PLAIN_ENOUGH * self._stretch:
                    self._stretch = 1
                if not lines.has_a_whole_one:
                    continue
            yield from batches_of(self._one_by_one())
            if self._stopped is not None:
                raise self._stopped
            self._stretch = min(2 * self._stretch, MOST_ONE_BY_ONE)

    def _one_by_one(self) -> Iterator[Event]:
        read = 0
        try:
            for _, record in islice(self._reader.records_of(self._lines.one_by_one(), self._order), self._stretch):
                if isinstance(record, End):
                    break
                read += 1
                yield record
        except Exception as error:
            self._stopped = error
        self._is_over = read < self._stretch
