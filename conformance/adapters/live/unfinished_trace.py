"""Closes the trace of a process that died while it wrote: what is whole stays, and the end record says what is missing.

It is done by the server, beside its work, so nothing here reads a trace: of lines only the end, of columns only the heads.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from kvproof.conformance.adapters.live.lines_file import end_line
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX, BlockError, Kind, heads, packed
from kvproof.conformance.traces.records import LONGEST_RECORD
from kvproof.spec.trace import End

TAIL_BYTES = 1 << 16
# How long a process that was killed may take until its files are closed.
DYING_SECONDS = 2.0


class LeftBehind(NamedTuple):
    events: int
    """on disk, whole"""
    dropped: int


class _Tail(NamedTuple):
    """The last that is whole in a file."""

    at: int
    """where an end record belongs"""
    events: int
    blocks: int
    """columns only: how many blocks are before it"""
    reason: str | None
    """that of the end record that stands there"""


def close_what_was_left(path: Path, reason: str, seen: int) -> LeftBehind | None:
    """Cut off what is torn and write the end record, for `seen` events in all. None: somebody still writes, or it is packed.

    Raises OSError where the file cannot be written on.
    """
    if path.suffix == ".gz":
        return None
    with path.open("r+b", buffering=0) as file:
        if not _is_ours(file):
            return None
        is_columnar = path.suffix == COLUMNAR_SUFFIX
        tail = _tail_of_columns(file) if is_columnar else _tail_of_lines(file)
        # The process that wrote knew best why it ended, if it said so.
        why = tail.reason if tail.reason not in (None, "finished") else reason
        end = End(events=tail.events, dropped=max(0, seen - tail.events), reason=why or reason)
        record = end_line(end)
        if is_columnar:
            record = packed(tail.blocks, Kind.END, tail.events, 0, record.rstrip(b"\n"))
        file.truncate(tail.at)
        file.seek(tail.at)
        if file.write(record) < len(record):
            file.truncate(tail.at)
            raise OSError(0, "there is no room for the end record")
        return LeftBehind(tail.events, end.dropped)


def _is_ours(file: IO[bytes]) -> bool:
    deadline = time.monotonic() + DYING_SECONDS
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _tail_of_lines(file: IO[bytes]) -> _Tail:
    size, tail, begin = file.seek(0, os.SEEK_END), b"", 0
    window = TAIL_BYTES
    while True:
        begin = max(0, size - window)
        file.seek(begin)
        tail = file.read(size - begin)
        ends = tail.rfind(b"\n")
        starts = tail.rfind(b"\n", 0, max(0, ends)) + 1
        if begin == 0 or (ends > 0 and starts > 0):
            break
        if window > LONGEST_RECORD:
            raise OSError(0, "its last line has no beginning")
        window *= 4
    if ends < 0:
        raise OSError(0, "it has no whole line")
    last = json.loads(tail[starts : ends + 1])
    if last["record"] == "end":
        return _Tail(begin + starts, last["events"], 0, last["reason"])
    return _Tail(begin + ends + 1, last["seq"] + 1 if last["record"] == "event" else 0, 0, None)


def _tail_of_columns(file: IO[bytes]) -> _Tail:
    at = events = blocks = 0
    reason = None
    with suppress(BlockError):
        for head in heads(file):
            if head.kind is Kind.END:
                file.seek(head.payload_at)
                reason = json.loads(file.read(head.stored))["reason"]
                break
            at, events, blocks = head.payload_at + head.stored, events + head.events, blocks + 1
    if not blocks:
        raise OSError(0, "it has no whole block")
    return _Tail(at, events, blocks, reason)
