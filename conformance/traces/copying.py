"""Copies records from one trace to a new one. Until the copy is whole it has another name: a copy that was interrupted
must never be taken for a trace that somebody recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.whole_file import leaving_no_empty, require_other_file, require_parent


@contextmanager
def replacing(out: Path, source: Path, begin: Callable[[Path], TraceWriter]) -> Iterator[TraceWriter]:
    """A writer of `out`, which gets its name when the block ends without an error and is removed when it does not.

    The writer is to be closed or abandoned inside: only there it is known how the trace ends.
    """
    require_other_file(out, source)
    require_parent(out)
    partial = out.with_name(f".partial-{os.getpid()}-{out.name}")
    with leaving_no_empty(out.parent):
        try:
            writer = begin(partial)
            try:
                yield writer
            finally:
                writer.abandon()
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(out)
        except OSError as error:
            raise UserError(f"cannot write the trace {out}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):  # it was never there, or its folder is none
                partial.unlink()
