"""Reads and writes traces of lines: one JSON object a line, `.jsonl` or `.jsonl.gz`. Those in columns are in `columnar.py`.

The schema is `spec/trace.py`. A file that ends without its End record, also in the middle of a line, is *incomplete*: what a
crashed server leaves behind. That is a state the reader shows (`TraceReader.end is None`), not an error. A file that cannot
have been written by any recorder is a `UserError` which names path:line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, cast

from pydantic import ValidationError

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX
from kvproof.conformance.traces.columnar_events import EventColumns
from kvproof.conformance.traces.columnar_schema import actions_in, complete
from kvproof.conformance.traces.contents import Contents, counted
from kvproof.conformance.traces.event_fields import EventFields, fields_of_line
from kvproof.conformance.traces.records import LONGEST_RECORD, explained, line_of, named_twice, out_of_range
from kvproof.conformance.traces.slices import Slice
from kvproof.conformance.whole_file import make_parent
from kvproof.spec.trace import RECORD, TRACE_FORMAT, End, Event, Header

READABLE_FORMATS = (TRACE_FORMAT,)


class TraceWriter(AbstractContextManager["TraceWriter"]):
    """Writes one trace. Same events, same bytes: no clock and no file name enters the file, packed or not.

    The header reaches the disk at once and the events are buffered. Leaving the context by an exception closes the file
    without an End record unless `close` was called before: the trace of a run that crashed must never look finished.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self.path = Path(path)
        self.header = header
        self.events = 0
        """How many events were written so far."""
        self._contents = Contents()
        self._next_seq = 0
        if is_being_written(self.path):
            raise UserError(
                f"{self.path} is being written by a running server: choose another name, or stop that one first"
            )
        try:
            make_parent(self.path)
            self._file = self._open()
            self._put_header(header)
        except OSError as error:
            raise self._broken(error) from error

    @property
    def closed(self) -> bool:
        return self._file.closed

    def event(self, **fields: Any) -> int:
        """Write one event (fields of `spec.trace.Event` but `record` and `seq`); return its seq for later `cause`s."""
        event = Event(seq=self._next_seq, **fields)
        self.write(event)
        return event.seq

    def write(self, event: Event) -> None:
        """Write an event of another trace as it stands, its seq included."""
        try:
            self._put_event(event)
        except OSError as error:
            raise self._broken(error) from error
        self.events += 1
        self._contents.actions[event.action] += 1
        self._next_seq = event.seq + 1

    def flush(self) -> None:
        """Hand what was written so far to the system: it outlives this process then."""
        self._file.flush()

    def close(self, reason: str = "finished", *, dropped: int = 0, copied: End | None = None) -> None:
        """Write the End record and close the file. Closing twice does nothing, so a recorder may close early.

        `copied`: the End record of the trace that the events are from. If it does not show that this one is complete, the
        copy's does not, either.
        """
        if self.closed:
            return
        try:
            self._put_rest()
            end = End(events=self.events, dropped=dropped, reason=reason)
            if copied is None or copied.sha256 is not None:
                contents = {"actions": counted(self._contents.actions), "sha256": self._contents.sha256}
                end = end.model_copy(update=contents)
            self._put_end(end)
            self._file.close()
        except OSError as error:
            raise self._broken(error) from error

    def abandon(self) -> None:
        """Flush and close without an End record: the trace stays incomplete. A full disk was the caller's error before."""
        with suppress(OSError):
            self._file.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _broken(self, error: OSError) -> UserError:
        return UserError(f"cannot write the trace {self.path}: {error.strerror or error}")

    def _open(self) -> IO[bytes]:
        return _open_for_writing(self.path)

    def _put_header(self, header: Header) -> None:
        self._put_line(line_of(header))
        self._file.flush()

    def _put_event(self, event: Event) -> None:
        line = line_of(event)
        if len(line) > LONGEST_RECORD:
            raise UserError(
                f"{self.path}: event {event.seq} is a line of {len(line)} bytes, the longest is {LONGEST_RECORD}: "
                f"write columns ({COLUMNAR_SUFFIX})"
            )
        self._put_line(line)

    def _put_line(self, line: bytes) -> None:
        self._contents.add(line)
        self._contents.add(b"\n")
        self._file.write(line + b"\n")

    def _put_rest(self) -> None:
        """Write the events that wait."""

    def _put_end(self, end: End) -> None:
        self._file.write(line_of(end) + b"\n")


class Place(NamedTuple):
    """Where reading can begin again: a byte of the file, and what was read before it."""

    position: int
    """0 in a file that is packed as a whole: there all is read again up to the line."""
    line: int
    """Number of the line that begins here; in columns, of the line that its first event would have."""
    block: int
    """In columns: the number of the block that begins here."""
    next_seq: int
    events: int


class Order:
    """The order of a trace as far as it was read. A method returns None, or what is wrong with what comes next."""

    def __init__(self, slice: Slice | None, begin: Place | None = None, contents: Contents | None = None) -> None:
        self._slice = slice
        self._next_seq = slice.first if slice else 0
        self.events = 0
        self.contents = contents or Contents()
        """Those that were read so far."""
        self._is_from_begin = begin is None
        if begin is not None:
            self._next_seq, self.events = begin.next_seq, begin.events

    def after(self, event: Event | EventFields) -> str | None:
        if wrong := self.wrong_with(event.seq, event.seq, 1):
            return wrong
        self._next_seq, self.events = event.seq + 1, self.events + 1
        self.contents.actions[event.action] += 1
        return None

    def after_batch(self, batch: Any) -> str | None:
        """Some events as a record batch, in ascending order."""
        first, last = batch["seq"][0].as_py(), batch["seq"][-1].as_py()
        if wrong := self.wrong_with(first, last, len(batch)):
            return wrong
        self._next_seq, self.events = last + 1, self.events + len(batch)
        self.contents.actions.update(actions_in(batch))
        return None

    def wrong_with(self, first: int, last: int, events: int) -> str | None:
        """What is wrong with so many events, from seq `first` to seq `last`; they are not counted as read."""
        expected = self._next_seq
        if self._slice is not None and self._slice.last is not None and last > self._slice.last:
            return f"event seq {last} in a slice that ends with {self._slice.last}"
        if self._slice is not None and self._slice.has_gaps and first >= expected:
            return None
        if first != expected:
            return f"event seq {first}, expected {expected}: lines lost or reordered"
        return None if last - first == events - 1 else f"{events} events from seq {first} to {last}: events lost"

    def after_end(self, end: End) -> str | None:
        if self._is_from_begin and (wrong := self.contents.wrong_actions(end)):
            return wrong
        if end.events != self.events:
            return f"the end record counts {end.events} events, the file holds {self.events}"
        return self.contents.wrong_sha256(end)


class TraceReader:
    """A trace on disk. Iterating streams (line number, Event or End); what was seen of its end is known afterwards.

    Iterating again reads the file again. `end` is None and `complete` False until an iteration saw the end record.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.end: End | None = None
        self.truncated_at: int | None = None
        self.position = 0
        """Bytes of the file read so far; 0 where the file is packed as a whole, so that this says nothing."""
        self.place: Place | None = None
        """Where the events begin again that come after all that were given; a part that is given at once counts whole."""
        self._begin: Place | None = None
        self.order = Order(None)
        self._open()

    def _open(self) -> None:
        self.header = self._read_header()
        try:
            self.slice = Slice.of(self.header)
        except ValueError as error:
            raise self._error(1, str(error)) from error

    def begin_at(self, place: Place) -> None:
        """What is iterated over next starts there and not at the first event."""
        self._begin = self.place = place

    @property
    def complete(self) -> bool:
        return self.end is not None

    @property
    def torn(self) -> str | None:
        """The record in the middle of which the file breaks off, in words; None: it does not."""
        return None if self.truncated_at is None else f"line {self.truncated_at}"

    @property
    def broken_off(self) -> str | None:
        """Where the file breaks off, as a sentence; None: it does not."""
        if self.truncated_at is None:
            return None
        return (
            f"{self._place(self.truncated_at)}: the line is cut off: its writer was stopped, or the file was not copied whole; "
            "record or copy it again (kvproof watch follows a trace that is still written)"
        )

    def __iter__(self) -> Iterator[tuple[int, Event | End]]:
        order = self.start_over()
        yield from self._in_order(self._records(), order)

    def start_over(self) -> Order:
        """Nothing is read yet; the order in which records have to come."""
        self.end, self.truncated_at, self.position = None, None, 0
        self.order = Order(self.slice, self._begin)
        return self.order

    def _in_order(
        self, records: Iterator[tuple[int, Header | Event | End]], order: Order
    ) -> Iterator[tuple[int, Event | End]]:
        for number, record in records:
            if isinstance(record, Header):
                raise self._error(number, "a second header; were two traces joined? replay them one by one")
            wrong = order.after_end(record) if isinstance(record, End) else order.after(record)
            if wrong:
                raise self._error(number, wrong)
            if isinstance(record, End):
                self.end = record
            else:
                self._is_read(number, record.seq, order.events)
            yield number, record

    def _is_read(self, number: int, seq: int, events: int) -> None:
        self.place = Place(self.position, number + 1, 0, seq + 1, events)

    def batches(self) -> Iterator[Any]:
        """The events as record batches (`pyarrow.RecordBatch`) in all the columns of docs/columnar.md, checked.

        Each has one event at least, seqs ascend. As when iterating, `end` and `torn` are known afterwards.
        """
        return map(complete, self.stored_batches())

    def stored_batches(self) -> Iterator[Any]:
        """The batches without the columns that are null throughout. What is wrong with a record is raised after the
        events before it."""
        order, columns, lines = self.start_over(), EventColumns(), self._lines_of_records()
        place, stopped = self.place, None
        try:
            for number, line in lines:
                fields = fields_of_line(line)
                if fields is not None and order.after(fields) is None:
                    columns.add_fields(fields)
                    seq = fields.seq
                else:  # read as a record, which says what is wrong with it
                    _, record = next(self._in_order(self._records_of(chain([(number, line)], lines)), order), (0, None))
                    if not isinstance(record, Event):
                        break
                    columns.add(record)
                    seq = record.seq
                place = Place(self.position, number + 1, 0, seq + 1, order.events)
                if columns.full:
                    self.place = place
                    yield columns.take()
        except UserError as error:
            stopped = error
        self.place = place
        if len(columns):
            yield columns.take()
        if stopped is not None:
            raise stopped

    def events_from(self, seq: int) -> Iterator[Event]:
        """The events from `seq` on, without what is before them."""
        return (record for _, record in self if isinstance(record, Event) and record.seq >= seq)

    def _records(self) -> Iterator[tuple[int, Header | Event | End]]:
        """Number and record of everything behind the header, the number that of its line."""
        return self._records_of(self._lines_of_records())

    def _lines_of_records(self) -> Iterator[tuple[int, bytes]]:
        lines = self._lines(self._begin)
        if self._begin is None:
            next(lines, None)  # the header
        return lines

    def _records_of(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, Header | Event | End]]:
        for line_number, line in lines:
            record = self._parse(line_number, line)
            if record is None:
                self.truncated_at = line_number
                return
            # Looked at before the end record is given away: whoever has that reads no further.
            if isinstance(record, End) and next(lines, None) is not None:
                raise self._error(line_number + 1, "a record after the end record; an end record closes the trace")
            yield line_number, record

    def _read_header(self) -> Header:
        line = next((line for _, line in self._lines()), None)
        if line is None:
            if self.truncated_at is not None:
                raise self._error(1, "the file breaks off inside the header: nothing can be checked")
            raise self._error(None, "the file is empty; a trace starts with a header record")
        return self._parse_header(line)

    def _parse_header(self, line: bytes) -> Header:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(1, f"not JSON: {error}; a trace starts with a header record") from error
        if not isinstance(fields, dict) or fields.get("record") != "header":
            raise self._error(1, 'the header is missing: the first line of a trace is {"record":"header", …}')
        # The version is looked at before the fields: a later format may well have other ones.
        version = fields.get("format")
        if version not in READABLE_FORMATS:
            readable = ", ".join(map(str, READABLE_FORMATS))
            raise self._error(
                1, f"trace format {version!r}; this kvproof reads format {readable}: record it again, or update"
            )
        header = cast(Header, self._validate(1, line))
        if wrong := out_of_range(header.config):
            raise self._error(1, wrong)
        return header

    def _parse(self, line_number: int, line: bytes) -> Header | Event | End | None:
        """The record of a line, or None if the line is the torn last one."""
        if not line.endswith(b"\n") and not _is_json(line):
            return None
        return self._validate(line_number, line)

    def _validate(self, line_number: int | None, line: bytes) -> Header | Event | End:
        try:
            record = RECORD.validate_json(line, strict=True)
        except ValidationError as error:
            raise self._error(line_number, explained(error.errors(include_url=False)[0])) from error
        if (twice := named_twice(line)) is not None:
            raise self._error(line_number, f"{twice!r} stands twice in one object")
        return record

    def _lines(self, begin: Place | None = None) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line. A packed file that breaks off ends like a torn line: with `truncated_at`.

        A line is of the contents once there is another one behind it: the end record, the last, is not.
        """
        line_number, contents, before = 0, self.order.contents, b""
        try:
            with _open_for_reading(self.path) as file:
                line_number, is_packed = 0, _is_packed(self.path)
                if begin is not None:
                    line_number = begin.line - 1
                    if is_packed:
                        for line in islice(file, line_number):
                            contents.add(line)
                    else:
                        contents.add_from(file, begin.position)
                        self.position = begin.position
                while line := file.readline(LONGEST_RECORD + 1):
                    contents.add(before)
                    before = line
                    line_number += 1
                    if len(line) > LONGEST_RECORD:
                        raise self.too_long(line_number)
                    if not is_packed:
                        self.position += len(line)
                    yield line_number, line
        except EOFError:
            self.truncated_at = line_number + 1
        except (gzip.BadGzipFile, zlib.error) as error:
            if line_number == 0:
                raise self._error(None, f"named .gz but not gzip: {error}") from error
            raise self._error(
                line_number + 1, f"the packed file is damaged behind line {line_number}: {error}"
            ) from error
        except OSError as error:
            raise self._error(None, f"cannot read the trace: {error.strerror or error}") from error

    @property
    def first_seq(self) -> int:
        """Seq of the first event of the file: 0, but in a slice."""
        return self.slice.first if self.slice is not None else 0

    def too_long(self, line_number: int) -> UserError:
        return self._error(
            line_number, f"the line is longer than {LONGEST_RECORD} bytes: no recorder writes one so long"
        )

    def _error(self, line_number: int | None, what: str) -> UserError:
        return UserError(f"{self._place(line_number)}: {what}")

    def _place(self, line_number: int | None) -> str:
        return at(self.path, line_number)


def is_being_written(path: Path) -> bool:
    """Whether a server writes its trace into this file now: the process that writes holds a lock on it."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # no such file, or a system that has no such locks
        return False
    return False


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_packed(path: Path) -> bool:
    return path.suffix == ".gz"


def _open_for_writing(path: Path) -> IO[bytes]:
    file = path.open("wb")
    if not _is_packed(path):
        return file
    # By default GzipFile stamps the file name and the time into its header. It closes only `myfileobj` with itself.
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    packed.myfileobj = cast(Any, file)
    return cast("IO[bytes]", packed)


def _open_for_reading(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if _is_packed(path) else path.open("rb")
