"""The process that writes a server's trace: it reads what `handover.py` sends and writes the lines (`lines.py`).

It is started by a scheduler and then stands on its own: SGLang stops by killing its processes, and all that is theirs, so
it must be nobody's child. Its pipe tells when the scheduler has ended, however that came about.

When the scheduler says that it is idle, the trace gets its end record; the next event takes it back. So a server that is
stopped while idle, which is how SGLang stops, leaves a complete trace, and one that dies at work an incomplete one.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Iterator
from typing import IO, Any

from kvproof.conformance.adapters.live.columns_file import ColumnsFile
from kvproof.conformance.adapters.live.handover import IDLE, LENGTH_BYTES
from kvproof.conformance.adapters.live.lines import Lines
from kvproof.conformance.adapters.live.lines_file import LinesFile, PackedFile
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX


def open_in_form(file: int, suffix: str, header_line: bytes) -> LinesFile:
    """In the form that the name of the file asks for."""
    if suffix == COLUMNAR_SUFFIX:
        return ColumnsFile(file, header_line)
    return (PackedFile if suffix == ".gz" else LinesFile)(file, header_line)


def frames(pipe: IO[bytes]) -> Iterator[Any]:
    """The values that were sent; ends when the pipe does, also in the middle of one."""
    while len(head := pipe.read(LENGTH_BYTES)) == LENGTH_BYTES:
        size = int.from_bytes(head, "little")
        value = pipe.read(size)
        if len(value) < size:
            return
        yield marshal.loads(value)


def write_trace(pipe: IO[bytes]) -> None:
    """Write the trace that comes through `pipe`. Its first frame: (open file, its suffix, page size, line of the header)."""
    incoming = frames(pipe)
    file, suffix, page_size, header_line = next(incoming)
    trace, lines, is_whole = open_in_form(file, suffix, header_line), Lines(page_size), False
    for value in incoming:
        if isinstance(value, list):
            trace.add(lines.of(value))
            is_whole = False
        elif value == IDLE:
            trace.idle(lines.actions)
            is_whole = True
        else:
            _, reason, dropped = value
            trace.end(reason, dropped, lines.actions)
            break
    else:
        if is_whole:
            trace.end("finished", actions=lines.actions)
    trace.close()


def main() -> None:
    try:
        with open(0, "rb") as pipe:
            write_trace(pipe)
    except OSError as error:
        print(f"kvproof: the trace breaks off: {error.strerror or error}", file=sys.stderr, flush=True)
