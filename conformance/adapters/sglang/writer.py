"""The process that writes a server's trace: it reads what `handover.py` sends, makes events of it and writes the lines.

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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kvproof.spec.trace import End, Event, Header, Observed

from .assembly import Assembly
from .handover import IDLE, LENGTH_BYTES

_EVENT_FIELDS = tuple(name for name in Event.model_fields if name not in ("record", "seq"))
_OBSERVED_FIELDS = tuple(Observed.model_fields)
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def header_line(header: Header) -> bytes:
    return _encode(header.model_dump(mode="json", exclude_none=True)).encode() + b"\n"


def end_line(end: End) -> bytes:
    return _encode(end.model_dump(mode="json")).encode() + b"\n"


def revoke_end(path: Path, reason: str, dropped: int) -> None:
    """The process that wrote this trace died while the server was idle: its end record is no longer true."""
    with path.open("r+b") as file:
        last_line = file.read().splitlines(keepends=True)[-1]
        fields = json.loads(last_line)
        if fields["record"] == "end":
            file.seek(-len(last_line), os.SEEK_END)
            file.write(end_line(End(events=fields["events"], dropped=dropped, reason=reason)))
            file.truncate()


def event_line(seq: int, fields: dict[str, Any]) -> bytes:
    """The line of an event as `TraceWriter` would write it, ten times as fast: the fields are not validated again."""
    body: dict[str, Any] = {"record": "event", "seq": seq}
    for name in _EVENT_FIELDS:
        value = fields.get(name)
        if value is None or (not value and name in ("alloc", "free", "window_alloc", "window_free", "params", "after")):
            continue
        if name == "after":
            value = {key: value[key] for key in _OBSERVED_FIELDS if value.get(key) is not None}
            if not value:
                continue
        elif name == "params":
            value = dict(sorted(value.items()))
        body[name] = value
    return _encode(body).encode() + b"\n"


class LiveTrace:
    """A trace that grows on disk and is readable at any moment up to its last whole line. `file`: an empty file's descriptor."""

    def __init__(self, file: int, header_line: bytes, *, packed: bool) -> None:
        self._file = io.FileIO(file, "wb")
        # Without a name and a time in it: same events, same bytes.
        self._packed = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0) if packed else None
        self._end_at: int | None = None
        self.events = 0
        self._write(header_line)

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        """Write events. If the disk does not take them all, it takes none of them."""
        lines = [event_line(seq, fields) for seq, fields in enumerate(events, start=self.events)]
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
    trace, assembly, is_whole = LiveTrace(file, header_line, packed=packed), Assembly(page_size), False
    for value in incoming:
        if isinstance(value, list):
            trace.add(event for record in value for event in assembly.events(record))
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
