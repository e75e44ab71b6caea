"""The live trace in lines: a file that grows, and is readable at any moment up to its last whole line."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, cast

from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX, Kind, packed
from kvproof.conformance.traces.contents import Contents, counted
from kvproof.conformance.traces.records import line_of
from kvproof.spec.trace import End, Header

# Cut off the end of a file on a full disk, so that its end record fits: more than a block of most file systems.
ROOM_BYTES = 8192


def header_line(header: Header) -> bytes:
    return line_of(header) + b"\n"


def beginning(suffix: str, header_line: bytes) -> bytes:
    """The first bytes of a trace in the form that its name asks for; none of one that is packed as a whole."""
    if suffix == COLUMNAR_SUFFIX:
        return packed(0, Kind.HEADER, 0, 0, header_line.rstrip(b"\n"))
    return b"" if suffix == ".gz" else header_line


def end_line(end: End) -> bytes:
    return line_of(end) + b"\n"


class LinesFile:
    """A trace that grows on disk and is readable at any moment up to its last whole line.

    `file`: the descriptor of a file that is empty, or holds the header already.
    """

    def __init__(self, file: int, header_line: bytes) -> None:
        self._file = io.FileIO(file, "wb")
        self._end_at: int | None = None
        self._given = 0
        self._contents = Contents()
        self.events = 0
        """events that reached the file"""
        if os.fstat(file).st_size:
            self._file.seek(0, os.SEEK_END)
            self._contents.add(self._header_in_form(header_line))
        else:
            self._begin(header_line)
        self._header_ends = self._file.tell()

    def add(self, lines: list[bytes]) -> None:
        """Write lines of events. If the disk does not take them all, it takes none of them, and that is the end of the trace."""
        self._given += len(lines)
        with self._or_give_up():
            self._take_end_back()
            self._put(lines)

    def idle(self, actions: Mapping[str, int] | None = None) -> None:
        """Nothing is in flight: the trace is complete as it is."""
        self.end("finished", actions=actions)

    def end(self, reason: str, dropped: int = 0, actions: Mapping[str, int] | None = None) -> None:
        """Write the end record; `add` may take it back. `dropped`: events that never came here. `actions`: of those that did."""
        with self._or_give_up():
            self._take_end_back()
            self._end(reason, dropped, actions)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _or_give_up(self) -> Iterator[None]:
        """On a disk that takes no more, the trace gets its end record yet if that can be. The error is raised again."""
        try:
            yield
        except OSError as error:
            self._give_up(f"the trace could not be written on: {error.strerror}")
            raise

    def _give_up(self, reason: str) -> None:
        try:
            self._end(reason, 0)
        except OSError:
            with suppress(OSError):
                self._make_room()
                self._end(reason, 0)

    def _end(self, reason: str, dropped: int, actions: Mapping[str, int] | None = None) -> None:
        """With the contents, if all that came here is in the file."""
        end_at = self._file.tell()
        end = End(events=self.events, dropped=dropped + self._given - self.events, reason=reason)
        if actions is not None and self.events == self._given:
            end = end.model_copy(update={"actions": counted(actions), "sha256": self._contents.sha256})
        self._put_end(end)
        self._end_at = end_at

    # -- the form --

    def _begin(self, header_line: bytes) -> None:
        self._put_contents(self._header_in_form(header_line))

    def _header_in_form(self, header_line: bytes) -> bytes:
        return header_line

    def _put(self, lines: list[bytes]) -> None:
        self._put_contents(b"".join(lines))
        self.events += len(lines)

    def _put_contents(self, data: bytes) -> None:
        self._write(data)
        self._contents.add(data)

    def _put_end(self, end: End) -> None:
        self._write(end_line(end))

    def _make_room(self) -> None:
        """Cut whole lines off the end of the file."""
        size = self._file.tell()
        begin = max(self._header_ends, size - ROOM_BYTES)
        tail = os.pread(self._file.fileno(), size - begin, begin)
        kept = 0 if begin == self._header_ends else tail.find(b"\n") + 1
        self._cut(begin + kept)
        self.events -= tail.count(b"\n", kept)

    # -- the file --

    def _take_end_back(self) -> None:
        if self._end_at is not None:
            self._cut(self._end_at)
            self._end_at = None

    def _write(self, data: bytes) -> None:
        """All of it or nothing."""
        whole_until, rest = self._file.tell(), memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._cut(whole_until)
            raise

    def _cut(self, length: int) -> None:
        self._file.truncate(length)
        self._file.seek(length)


class PackedFile(LinesFile):
    """In gzip. What is packed cannot be taken back: it gets its end record once, and none when the disk is full."""

    def _begin(self, header_line: bytes) -> None:
        # Without a name and a time in it: same events, same bytes.
        self._packed = gzip.GzipFile(filename="", mode="wb", fileobj=cast(IO[bytes], _Below(super()._write)), mtime=0)
        self._put_contents(header_line)

    def idle(self, actions: Mapping[str, int] | None = None) -> None:
        pass

    def close(self) -> None:
        with suppress(OSError):
            self._packed.close()
        super().close()

    def _give_up(self, reason: str) -> None:
        pass

    def _write(self, data: bytes) -> None:
        self._packed.write(data)
        self._packed.flush()


class _Below:
    """What gzip writes into. It does not look how much a file took, so that must be all of it or nothing."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write

    def flush(self) -> None:
        pass
