"""Opens a trace to read or to write it: in lines (`json_lines.py`) or in columns (`columnar.py`).

What a file holds decides how it is read, its name how it is written.
"""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.traces.columnar import ColumnarReader, ColumnarWriter
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_MAGIC, COLUMNAR_SUFFIX
from kvproof.conformance.traces.json_lines import TraceReader, TraceWriter
from kvproof.spec.trace import Header


def read_trace(path: str | Path) -> TraceReader:
    """Open a trace, in lines or in columns, and read its header; iterate over the result for its records."""
    if is_columnar(path):
        return ColumnarReader(path)
    return TraceReader(path)


def write_trace(path: str | Path, header: Header) -> TraceWriter:
    """Begin a trace: in columns if the name ends in .kvtrace, else in lines."""
    if Path(path).suffix == COLUMNAR_SUFFIX:
        return ColumnarWriter(path, header)
    return TraceWriter(path, header)


def is_columnar(path: str | Path) -> bool:
    """Whether a file holds columns. What cannot be read is left to the reader, which says why."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(COLUMNAR_MAGIC)) == COLUMNAR_MAGIC
    except OSError:
        return False
