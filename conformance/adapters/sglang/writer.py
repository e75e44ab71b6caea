"""The process that writes a server's trace: it reads what `handover.py` sends and writes the lines (`lines.py`).

It is started by a scheduler and then stands on its own: SGLang stops by killing its processes, and all that is theirs, so
it must be nobody's child. Its pipe tells when the scheduler has ended, however that came about.

When the scheduler says that it is idle, the trace gets its end record; the next event takes it back. So a server that is
stopped while idle, which is how SGLang stops, leaves a complete trace, and one that dies at work an incomplete one.
"""

from __future__ import annotations

import gzip
import io
import json
import marshal
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kvproof.spec.trace import End, Header

from .handover import IDLE, LENGTH_BYTES
from .lines import Lines, encode


def header_line(header: Header) -> bytes:
    return encode(header.model_dump(mode="json", exclude_none=True)).encode() + b"\n"


def end_line(end: End) -> bytes:
    return encode(end.model_dump(mode="json")).encode() + b"\n"


def revoke_end(path: Path, reason: str, dropped: int) -> None:
    """The process that wrote this trace died while the server was idle: its end record is no longer true."""
    with path.open("r+b") as file:
        last_line = file.read().splitlines(keepends=True)[-1]
        fields = json.loads(last_line)
        if fields["record"] == "end":
            file.seek(-len(last_line), os.SEEK_END)
            file.write(end_line(End(events=fields["events"], dropped=dropped, reason=reason)))
            file.truncate()


class LiveTrace:
    """A trace that grows on disk and is readable at any moment up to its last whole line. `file`: an empty file's descriptor."""

    def __init__(self, file: int, header_line: bytes, *, packed: bool) -> None:
        self._file = io.FileIO(file, "wb")
        # Without a name and a time in it: same events, same bytes.
        self._packed = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0) if packed else None
        self._end_at: int | None = None
        self.events = 0
        self._write(header_line)

    def add(self, lines: list[bytes]) -> None:
        """Write lines of events. If the disk does not take them all, it takes none of them."""
        self._take_end_back()
        try:
            self._write(b"".join(lines))
        except OSError as error:
            with suppress(OSError):
                self.end(f"the trace could not be written on: {error.strerror}", dropped=len(lines))
            raise
        self.events += len(lines)

    def idle(self) -> None:
        """Nothing is in flight: the trace is complete as it is."""
        if self._packed is None:  # what is packed cannot be taken back
            self.end("finished")

    def end(self, reason: str, dropped: int = 0) -> None:
        """Write the end record; `add` may take it back."""
        self._take_end_back()
        end_at = self._file.tell()
        self._write(end_line(End(events=self.events, dropped=dropped, reason=reason)))
        self._end_at = end_at

    def close(self) -> None:
        if self._packed is not None:
            self._packed.close()
        self._file.close()

    def _take_end_back(self) -> None:
        if self._end_at is not None:
            self._cut(self._end_at)
            self._end_at = None

    def _write(self, data: bytes) -> None:
        if self._packed is not None:
            self._packed.write(data)
            self._packed.flush()
            return
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


def frames(pipe: IO[bytes]) -> Iterator[Any]:
    """The values that were sent; ends when the pipe does, also in the middle of one."""
    while len(head := pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
        size = int.from_bytes(head, "little")
        packed = pipe.read(size)
        if len(packed) < size:
            return
        yield marshal.loads(packed)


def write_trace(pipe: IO[bytes]) -> None:
    """Write the trace that comes through `pipe`. Its first frame is (open file, packed?, page size, line of the header)."""
    incoming = frames(pipe)
    file, packed, page_size, header_line = next(incoming)
    trace, lines, is_whole = LiveTrace(file, header_line, packed=packed), Lines(page_size), False
    for value in incoming:
        if isinstance(value, list):
            trace.add(lines.of(value))
            is_whole = False
        elif value == IDLE:
            trace.idle()
            is_whole = True
        else:
            _, reason, dropped = value
            trace.end(reason, dropped)
            break
    else:
        if is_whole:
            trace.end("finished")
    trace.close()


def main() -> None:
    try:
        with open(0, "rb") as pipe:
            write_trace(pipe)
    except OSError as error:
        print(f"kvproof: the trace breaks off: {error.strerror or error}", file=sys.stderr, flush=True)
