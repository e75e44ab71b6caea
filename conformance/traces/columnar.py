"""Traces in columns: the writer and the reader, with the faces of those for lines (`json_lines.py`).

The file format is in docs/columnar.md; blocks are framed in `columnar_blocks.py`, their payload is checked in
`columnar_check.py` and made of events in `columnar_events.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_blocks import Block, BlockError, Kind, TornBlock, blocks, packed
from kvproof.conformance.traces.columnar_check import batch_of
from kvproof.conformance.traces.columnar_events import EventColumns, events_of
from kvproof.conformance.traces.columnar_schema import may_be_missing, pyarrow
from kvproof.conformance.traces.json_lines import Place, TraceReader, TraceWriter
from kvproof.conformance.traces.records import line_of
from kvproof.spec.trace import End, Event, Header


class ColumnarWriter(TraceWriter):
    """Writes a trace in columns, a block of events at a time. A reader sees each block once it is written whole.

    Events wait in memory until a block is full: call `flush` where they must reach the file sooner.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        pyarrow()
        self._columns = EventColumns()
        self._blocks = 0
        super().__init__(path, header)

    def flush(self) -> None:
        """Write the events that wait as a block of their own."""
        if not len(self._columns):
            return
        first_seq, events = self._columns.first_seq, len(self._columns)
        self._write_block(Kind.EVENTS, first_seq, events, stream_of_batch(self._columns.take()))

    def abandon(self) -> None:
        if not self.closed:
            with suppress(OSError):
                self.flush()
        super().abandon()

    def _open(self) -> IO[bytes]:
        # Unbuffered: a block reaches the file in one write, or is torn where the machine stops.
        return self.path.open("wb", buffering=0)

    def _put_header(self, header: Header) -> None:
        self._write_block(Kind.HEADER, 0, 0, line_of(header))

    def _put_event(self, event: Event) -> None:
        self._columns.add(event)
        if self._columns.full:
            self.flush()

    _put_rest = flush

    def _put_end(self, end: End) -> None:
        self._write_block(Kind.END, self._next_seq, 0, line_of(end))

    def _write_block(self, kind: Kind, first_seq: int, events: int, payload: Any) -> None:
        try:
            block = packed(self._blocks, kind, first_seq, events, payload)
        except ValueError as error:
            raise UserError(f"{self.path}: {error}") from error
        self._contents.add(block)
        rest = memoryview(block)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._blocks += 1


class ColumnarReader(TraceReader):
    """A trace in columns. Iterating streams (number, Event or End), the number being that of its line as JSONL.

    `batches` streams the columns themselves. Memory is that of one block.
    """

    def __init__(self, path: str | Path) -> None:
        pyarrow()
        self._at = ""
        self._torn_how = ""
        super().__init__(path)

    @property
    def torn(self) -> str | None:
        return None if self.truncated_at is None else self._at

    @property
    def broken_off(self) -> str | None:
        return None if self.truncated_at is None else f"{self._place(None)}: {self._torn_how}"

    def stored_batches(self) -> Iterator[Any]:
        order = self.start_over()
        for part in self._parts():
            wrong = order.after_end(part) if isinstance(part, End) else order.after_batch(part)
            if wrong:
                raise self._error(None, wrong)
            if isinstance(part, End):
                self.end = part
            else:
                yield part

    def events_from(self, seq: int) -> Iterator[Event]:
        """The events from `seq` on. Blocks before it are checked as columns and make no events."""
        for batch in self.stored_batches():
            if batch["seq"][-1].as_py() >= seq:
                yield from (event for event in self._events_of(batch) if event.seq >= seq)

    def _records(self) -> Iterator[tuple[int, Header | Event | End]]:
        number = 2 if self._begin is None else self._begin.line  # the header is record 1, as it is line 1
        for part in self._parts():
            for record in (part,) if isinstance(part, End) else self._events_of(part):
                yield number, record
                number += 1
        if self.torn:
            self.truncated_at = number

    def _events_of(self, batch: Any) -> Iterator[Event]:
        try:
            yield from events_of(batch)
        except ValueError as error:
            raise self._error(None, f"not an event: {' '.join(str(error).split())}") from error

    def _read_header(self) -> Header:
        block = next(self._blocks(), None)
        if block is None:
            raise self._error(None, f"{self._torn_how}: nothing can be checked")
        if block.kind is not Kind.HEADER:
            raise self._error(None, "the header is missing: the first block of a trace holds it")
        return self._parse_header(block.payload)

    def _parts(self) -> Iterator[Any]:
        """What stands behind the header: record batches, then the end record."""
        self.end, self.truncated_at, self.position = None, None, 0
        ended, begin, read = False, self._begin, 0
        for block in self._blocks(begin):
            if block.kind is Kind.EVENTS:
                # Until the next block is asked for, some of this one may not have been looked at.
                earlier = begin.events if begin is not None else 0
                line = begin.line if begin is not None else 2
                self.place = Place(block.offset, line + read, block.number, block.first_seq, earlier + read)
                read += block.events
            if ended:
                raise self._error(None, "a block after the end record; an end record closes the trace")
            if block.kind is Kind.EVENTS:
                try:
                    yield batch_of(block)
                except BlockError as error:
                    raise self._error(None, str(error)) from error
            elif block.number > 0:
                record = self._validate(None, block.payload)
                if not isinstance(record, End):
                    raise self._error(None, f"a second {record.record} among the blocks of events")
                ended = True
                yield record

    def _is_read(self, number: int, seq: int, events: int) -> None:
        """Reading begins again with the whole block."""

    def _blocks(self, begin: Place | None = None) -> Iterator[Block]:
        """The blocks of the file up to a torn one; `_at` names the one that was read last."""
        try:
            with self.path.open("rb") as file:
                contents, place = self.order.contents, (0, 0)
                if begin is not None:
                    contents.add_from(file, begin.position)
                    place = begin.block, begin.position
                for block in blocks(file, *place, contents):
                    self._at = f"block {block.number} at byte {block.offset}"
                    self.position = file.tell()
                    yield block
        except TornBlock as error:
            self._at = f"block {error.number} at byte {error.offset}"
            self._torn_how, self.truncated_at = str(error), error.number + 1
        except BlockError as error:
            self._at = f"block {error.number} at byte {error.offset}"
            raise self._error(None, str(error)) from error
        except OSError as error:
            raise UserError(f"{self.path}: cannot read the trace: {error.strerror or error}") from error

    def _place(self, line_number: int | None) -> str:
        return f"{self.path}: {self._at}"


def stream_of_batch(batch: Any) -> Any:
    """A record batch as an Arrow stream (`pyarrow.Buffer`), without the columns that a reader fills in by itself."""
    pa = pyarrow()
    seqs = batch["seq"]
    runs_on = seqs[-1].as_py() - seqs[0].as_py() == len(batch) - 1
    kept = [
        field.name
        for field in batch.schema
        if not may_be_missing(field)
        or (not runs_on if field.name == "seq" else batch[field.name].null_count < len(batch))
    ]
    batch = batch.select(kept)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()
