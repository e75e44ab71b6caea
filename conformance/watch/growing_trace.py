"""A trace that is being written, in lines or in columns: the records that are whole by now, the checks those of the readers.

A source is asked again and again. It gives what is new: events (as objects, or as a record batch where columns are wanted),
or the end record. A record that is not whole yet is waited for; whoever stops waiting finds it named in `broken_off`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar import ColumnarReader
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_MAGIC, Block, BlockError, Kind, TornBlock, next_block
from kvproof.conformance.traces.columnar_check import batch_of
from kvproof.conformance.traces.columnar_events import EventColumns
from kvproof.conformance.traces.columnar_schema import complete, pyarrow
from kvproof.conformance.traces.contents import Contents
from kvproof.conformance.traces.event_fields import fields_of_line
from kvproof.conformance.traces.json_lines import Order, TraceReader
from kvproof.conformance.traces.records import LONGEST_RECORD
from kvproof.conformance.traces.slices import Slice
from kvproof.spec.trace import End, Event, Header

AT_ONCE = 2**20
"""Bytes of lines that are read before something else is looked at."""
EVENTS_AT_ONCE = 256
"""Events that are read before something else is looked at, where they are judged one by one."""


GZIP_MAGIC = b"\x1f\x8b"


REMEMBERED = 64
"""Bytes before the firm place that are compared to see whether the file is still the same."""
HEAD = 4096
"""Bytes of its beginning that are compared, too: a writer that starts anew may soon be as far as the old one was."""


class GrowingFile:
    """A file that someone else is writing: what is new in it, and whether what was read is still there.

    What was read is *firm* up to a place, and from there on open: the record that is not whole yet, or an end record, which the
    recorder of a server takes back when the next event comes. The open part may change; if anything before it does, the file is
    another one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file: IO[bytes] = path.open("rb", buffering=0)
        except OSError as error:
            raise _cannot_read(path, error) from error
        self.firm = 0
        self._mark = b""
        self._head = b""

    def close(self) -> None:
        self.file.close()

    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def open_part(self, most: int) -> bytes:
        """What stands behind the firm place, at most so many bytes."""
        try:
            return os.pread(self.file.fileno(), most, self.firm)
        except OSError as error:
            raise _cannot_read(self.path, error) from error

    def make_firm(self, count: int) -> None:
        """So many bytes of the open part are read for good."""
        self.firm += count
        number, start = self.file.fileno(), max(0, self.firm - REMEMBERED)
        self._mark = os.pread(number, self.firm - start, start)
        if len(self._head) < HEAD:
            self._head = os.pread(number, min(self.firm, HEAD), 0)

    def was_rewritten(self) -> bool:
        """Whether what was read for good is no longer there."""
        number, head = self.file.fileno(), self._head
        return (
            os.pread(number, len(head), 0) != head
            or os.pread(number, len(self._mark), self.firm - len(self._mark)) != self._mark
        )

    def is_elsewhere(self) -> bool:
        """Whether another file, or none, has this path by now."""
        try:
            named = self.path.stat()
        except OSError:
            return True
        ours = os.fstat(self.file.fileno())
        return (named.st_ino, named.st_dev) != (ours.st_ino, ours.st_dev)


def _cannot_read(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot read the trace: {error.strerror or error}")


@dataclass(frozen=True)
class Events:
    """Events that stand in the trace one after the other, the first on line `line`: objects, or a record batch."""

    line: int
    events: Any

    def __len__(self) -> int:
        return len(self.events)

    def objects(self, first: int = 0) -> list[Event]:
        """From one of them on."""
        if isinstance(self.events, list):
            return self.events[first:]
        from kvproof.conformance.compiled.columns import events_in

        return list(events_in(self.events, first))


Part = Events | End


class Source(ABC):
    """One trace. `held`: bytes of a record that is not whole yet. `ends_taken_back`: end records that proved not to be final."""

    header: Header
    slice: Slice | None
    end: End | None
    behind_from: int
    """Bytes that wait: with more, whoever judges one by one is too slow."""

    def __init__(self, file: GrowingFile) -> None:
        self.file = file
        self.order = Order(None)
        self.line = 2
        """Line of the next record, as JSONL: the header is line 1."""
        self.held = 0
        self.ends_taken_back = 0

    @abstractmethod
    def new(self, columns: bool) -> Iterator[Part]:
        """What came since the last call; `columns`: as record batches. Raises UserError at damage."""

    @property
    @abstractmethod
    def broken_off(self) -> str | None:
        """The record that is not whole yet, as a sentence."""

    def unread(self) -> int:
        """Bytes of the file that nobody has judged yet. What is not whole yet is the writer's, not behind."""
        return max(0, self.file.size() - self.file.firm - self.held)


class LineSource(Source, TraceReader):
    """A trace in lines. Its end record may be taken back: the next event then stands in its place."""

    behind_from = 2**18

    def __init__(self, file: GrowingFile, header_line: bytes) -> None:
        Source.__init__(self, file)
        self.path, self.end, self.truncated_at, self.position = file.path, None, None, 0
        self._header_line = header_line
        self._open()
        self.order = Order(self.slice)
        self.order.contents.add(header_line)
        self._end_line = b""
        file.make_firm(len(header_line))

    def _read_header(self) -> Header:
        return self._parse_header(self._header_line)

    @property
    def broken_off(self) -> str | None:
        if not self.held:
            return None
        return f"{self._place(self.line)}: the line is cut off ({self.held} bytes of it are there)"

    def new(self, columns: bool) -> Iterator[Part]:
        data = self.file.open_part(len(self._end_line) + self.held + AT_ONCE)
        if self._end_line:
            if data.startswith(self._end_line):
                if len(data) > len(self._end_line):
                    raise self._error(self.line, "a record after the end record; an end record closes the trace")
                return
            self._end_line, self.end = b"", None
            self.line -= 1
            self.ends_taken_back += 1
        whole = data[: data.rfind(b"\n") + 1]
        self.held = len(data) - len(whole)
        if self.held > LONGEST_RECORD:
            raise self.too_long(self.line + whole.count(b"\n"))
        if whole:
            yield from self._parts(whole, columns)

    def unread(self) -> int:
        return max(0, super().unread() - len(self._end_line))

    def _parts(self, lines: bytes, in_columns: bool) -> Iterator[Part]:
        """The records of whole lines. What stands before something wrong is given first."""
        columns, events, length = EventColumns(), list[Event](), 0

        def gathered() -> Iterator[Events]:
            nonlocal events, length
            some = complete(columns.take()) if len(columns) else events
            if len(some):
                self.file.make_firm(length)
                events, length = [], 0
                yield Events(self.line - len(some), some)

        for text in BytesIO(lines):
            if not (in_columns and self._is_added(columns, text)):
                try:
                    record = self._record(text)
                    if isinstance(record, Event):
                        (columns.add if in_columns else events.append)(record)
                except UserError:
                    yield from gathered()
                    if self.file.open_part(len(text)) != text:
                        return  # the writer took something back while it was read
                    raise
                if isinstance(record, End):
                    yield from gathered()
                    self.end, self._end_line = record, text
                    self.line += 1
                    yield record
                    return  # what stands behind it is looked at next time
            self.order.contents.add(text)
            self.line += 1
            length += len(text)
            if columns.full or len(events) == EVENTS_AT_ONCE:
                yield from gathered()
        yield from gathered()

    def _is_added(self, columns: EventColumns, text: bytes) -> bool:
        """Add a line to the columns without checking it against the schema, if it is plain enough for that."""
        fields = fields_of_line(text)
        if fields is None or len(text) > LONGEST_RECORD or self.order.after(fields) is not None:
            return False
        columns.add_fields(fields)
        return True

    def _record(self, text: bytes) -> Event | End:
        if len(text) > LONGEST_RECORD:
            raise self.too_long(self.line)
        record = self._validate(self.line, text)
        if isinstance(record, Header):
            raise self._error(self.line, "a second header; were two traces joined? replay them one by one")
        order = self.order
        wrong = order.after_end(record) if isinstance(record, End) else order.after(record)
        if wrong:
            raise self._error(self.line, wrong)
        return record


class BlockSource(Source, ColumnarReader):
    """A trace in columns: a block is read once it is whole."""

    behind_from = 2**14

    def __init__(self, file: GrowingFile, header: Block, contents: Contents) -> None:
        Source.__init__(self, file)
        self.path, self.end, self.truncated_at, self.position = file.path, None, None, 0
        self._number, self._header_block, self._tried_at = 1, header, -1
        self._at, self._torn_how = f"block 0 at byte {header.offset}", ""
        self._open()
        self.order = Order(self.slice, contents=contents)
        file.make_firm(file.file.tell())

    def _read_header(self) -> Header:
        if self._header_block.kind is not Kind.HEADER:
            raise self._error(None, "the header is missing: the first block of a trace holds it")
        return self._parse_header(self._header_block.payload)

    @property
    def broken_off(self) -> str | None:
        return f"{self._place(None)}: {self._torn_how}" if self.held else None

    def new(self, columns: bool) -> Iterator[Part]:
        size = self.file.size()
        if size == self._tried_at:  # nothing came since: a torn block is not read again and again
            return
        block = self._next_block()
        if block is None:
            self._tried_at = size
            return
        if self.end is not None:
            raise self._error(None, "a block after the end record; an end record closes the trace")
        if block.kind is Kind.EVENTS:
            yield from self._events_in(block, columns)
        else:
            record = self._validate(None, block.payload)
            if not isinstance(record, End):
                raise self._error(None, f"a second {record.record} among the blocks of events")
            if wrong := self.order.after_end(record):
                raise self._error(None, wrong)
            self.end = record
            self.line += 1
            yield record

    def _next_block(self) -> Block | None:
        file, offset = self.file, self.file.firm
        file.file.seek(offset)
        try:
            block = next_block(file.file, self._number, offset, self.order.contents)
        except TornBlock as error:
            self._at, self._torn_how = f"block {error.number} at byte {error.offset}", str(error)
            self.held = file.size() - offset
            return None
        except BlockError as error:
            self._at = f"block {error.number} at byte {error.offset}"
            raise self._error(None, str(error)) from error
        except OSError as error:
            raise UserError(f"{file.path}: cannot read the trace: {error.strerror or error}") from error
        self.held = 0
        if block is None:
            return None
        self._at = f"block {block.number} at byte {block.offset}"
        self._number += 1
        file.make_firm(file.file.tell() - offset)
        return block

    def _events_in(self, block: Block, columns: bool) -> Iterator[Part]:
        try:
            batch = batch_of(block)
        except BlockError as error:
            raise self._error(None, str(error)) from error
        if wrong := self.order.after_batch(batch):
            raise self._error(None, wrong)
        for first in range(0, len(batch), len(batch) if columns else EVENTS_AT_ONCE):
            some = batch if columns else batch.slice(first, EVENTS_AT_ONCE)
            line, self.line = self.line, self.line + len(some)
            yield Events(line, some if columns else list(self._events_of(some)))


def source_of(file: GrowingFile) -> Source | None:
    """The trace in a file, once its header is whole; None before that. Raises UserError if it cannot become a trace."""
    start = file.open_part(len(COLUMNAR_MAGIC))
    if start == COLUMNAR_MAGIC:
        return _block_source(file)
    if COLUMNAR_MAGIC.startswith(start):
        return None
    if start.startswith(GZIP_MAGIC):
        raise UserError(f"{file.path}: a packed trace cannot be followed, it is whole only at its end: kvproof replay")
    for most in (2**16, LONGEST_RECORD + 1):
        line, newline, _ = file.open_part(most).partition(b"\n")
        if newline:
            return LineSource(file, line + newline)
        if len(line) < most:
            return None
    raise UserError(f"{file.path}:1: the line is longer than {LONGEST_RECORD} bytes: this is no trace")


def _block_source(file: GrowingFile) -> Source | None:
    pyarrow()
    file.file.seek(0)
    contents = Contents()
    try:
        header = next_block(file.file, 0, 0, contents)
    except TornBlock:
        return None
    except BlockError as error:
        raise UserError(f"{file.path}: block 0 at byte 0: {error}") from error
    return BlockSource(file, header, contents) if header is not None else None
