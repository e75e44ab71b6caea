"""A file that someone else is writing: what is new in it, and whether what was read is still there.

What was read is *firm* up to a place, and from there on open: the record that is not whole yet, or an end record, which the
recorder of a server takes back when the next event comes. The open part may change; if anything before it does, the file is
another one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from kvproof.conformance.errors import UserError

REMEMBERED = 64
"""Bytes before the firm place that are compared to see whether the file is still the same."""
HEAD = 4096
"""Bytes of its beginning that are compared, too: a writer that starts anew may soon be as far as the old one was."""


class GrowingFile:
    """`firm`: bytes that count as read for good."""

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
