"""Whether the payload of a block holds what its head and docs/columnar.md say, before anything is read from it.

A checksum shows that a file is as it was written; these checks also hold against a file that was written to deceive:
code that reads columns may take indices, offsets and counts as they are.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from .columnar_blocks import Block, BlockError
from .columnar_events import MOST_PAGES
from .columnar_schema import (
    ACTIONS,
    LARGEST_NUMBER,
    NAMES,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    TERMS,
    may_be_missing,
    pyarrow,
    runs,
    schema,
)
from .trace_io import LONGEST_RECORD


def batch_of(block: Block) -> Any:
    """The record batch of a block of events (`pyarrow.RecordBatch`), checked. Raises BlockError."""
    pa = pyarrow()
    try:
        found = _read(block.payload)
        found.validate(full=True)
        batch = _completed(found, block.first_seq)
        _check(batch, block)
    except (pa.ArrowException, ValueError, KeyError, OSError, struct.error, OverflowError, MemoryError) as error:
        what = " ".join(str(error).split())
        raise BlockError(block.number, block.offset, f"its payload is no block of events: {what}") from error
    return batch


def _read(payload: Any) -> Any:
    pa = pyarrow()
    batches = 0
    for message in pa.ipc.MessageReader.open_stream(payload):
        if _is_packed(message.metadata.to_pybytes()):
            raise ValueError("buffers are compressed a second time")
        batches += message.type == "record batch"
    if batches != 1:
        raise ValueError(f"{batches} record batches, expected 1")
    with pa.ipc.open_stream(payload) as stream:
        _compare_schema(stream.schema)
        return stream.read_next_batch()


def _is_packed(metadata: bytes) -> bool:
    """Whether a message says that its buffers are compressed. Arrow would believe the lengths that these then claim.

    pyarrow does not tell, so the flatbuffer is followed: Message.header is field 2, of the type in field 1; a
    DictionaryBatch (2) holds a RecordBatch in field 1; RecordBatch.compression is field 3.
    """

    def field(table: int, number: int) -> int:
        """Where a field of a table stands; 0 if it is absent."""
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        if vtable < 0:
            raise ValueError("a message that points outside itself")
        size = struct.unpack_from("<H", metadata, vtable)[0]
        place = 4 + 2 * number
        inside = struct.unpack_from("<H", metadata, vtable + place)[0] if place < size else 0
        return table + inside if inside else 0

    def table_at(place: int) -> int:
        return int(place + struct.unpack_from("<I", metadata, place)[0])

    message = table_at(0)
    kind_at, header_at = field(message, 1), field(message, 2)
    if not kind_at or not header_at:
        raise ValueError("a message without a header")
    kind, header = metadata[kind_at], table_at(header_at)
    if kind == 2:
        data = field(header, 1)
        if not data:
            raise ValueError("a dictionary without data")
        kind, header = 3, table_at(data)
    return kind == 3 and field(header, 3) != 0


def _compare_schema(found: Any) -> None:
    expected = {field.name: field for field in schema()}
    for field in found:
        if field.name not in expected:
            raise ValueError(f"unknown column {field.name!r}: written by a newer kvproof")
        if field.type != expected[field.name].type:
            raise ValueError(f"column {field.name!r} is {field.type}, expected {expected[field.name].type}")
    if len(set(found.names)) != len(found.names):
        raise ValueError("a column stands twice")
    missing = [name for name, field in expected.items() if not may_be_missing(field) and name not in found.names]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing")


def _completed(batch: Any, first_seq: int) -> Any:
    """The batch with all columns, in their order. A writer leaves out what is null in a whole block, and seqs without
    a gap; a trace of an older kvproof has fewer columns for the same reason: nothing of the others was in it.
    """
    pa = pyarrow()

    def missing(field: Any) -> Any:
        if field.name == "seq":
            import numpy as np

            return pa.array(np.arange(first_seq, first_seq + len(batch), dtype=np.int64))
        return _nulls(field.type, len(batch))

    there = set(batch.schema.names)
    return pa.record_batch([batch[f.name] if f.name in there else missing(f) for f in schema()], schema=schema())


@functools.lru_cache(maxsize=32)
def _nulls(type_: Any, length: int) -> Any:
    """A column without a value. Blocks are of one length, and arrays are never changed: all share one for each type."""
    return pyarrow().nulls(length, type_)


def _check(batch: Any, block: Block) -> None:
    if len(batch) != block.events or not block.events:
        raise ValueError(f"{len(batch)} events, {block.events} in its head")
    for field in schema():
        if not field.nullable and batch.column(field.name).null_count:
            raise ValueError(f"column {field.name!r} has a null")
    seqs = batch.column("seq").to_numpy()
    if seqs[0] != block.first_seq or (seqs[1:] <= seqs[:-1]).any():
        raise ValueError(f"its events are out of order or do not start at {block.first_seq}")
    if batch.column("action").dictionary.to_pylist() != list(ACTIONS):
        raise ValueError("the dictionary of its actions is another one")
    for column in NAMES:
        if batch.column(column).dictionary.null_count:
            raise ValueError(f"a name of {column} is null")
    for group in ("terms", "window_terms"):
        columns = [batch.column(f"{group}_{name}") for name in TERMS]
        if all(column.null_count == len(batch) for column in columns):
            continue
        there = [column.is_valid() for column in columns]
        if any(column != there[0] for column in there):
            raise ValueError(f"some of {group} are missing")
    for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
        _check_lists(batch, column)
    _check_verbatim(batch)


def _check_lists(batch: Any, column: str) -> None:
    import numpy as np

    offsets, starts, counts = runs(batch, column)
    if batch.column(column).values.null_count:
        raise ValueError(f"a run of {column} is null")
    if not len(counts):
        return
    if counts.min() < 1 or (starts.astype(np.int64) + counts).max() > LARGEST_NUMBER + 1:
        raise ValueError(f"a run of {column} is empty or leaves the range of page ids")
    # Runs are short and lists may be long: what a list unpacks to is bounded before it is unpacked.
    if counts.sum(dtype=np.int64) > MOST_PAGES:
        pages = np.diff(np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[offsets])
        if pages.max() > MOST_PAGES:
            raise ValueError(f"{column} of an event names {pages.max()} pages; a list has at most {MOST_PAGES}")
    if batch.column(column).null_count:
        absent = ~batch.column(column).is_valid().to_numpy(zero_copy_only=False)
        if np.diff(offsets)[absent].any():
            raise ValueError(f"{column} names pages where it is null")


def _check_verbatim(batch: Any) -> None:
    """A verbatim event has nothing in its other columns: nothing may be there that only some readers look at."""
    if batch.column("verbatim").null_count == len(batch):
        return
    verbatim = batch.filter(batch.column("verbatim").is_valid())
    if (longest := max(len(text.as_buffer()) for text in verbatim.column("verbatim"))) > LONGEST_RECORD:
        raise ValueError(f"a verbatim event of {longest} bytes; a record has at most {LONGEST_RECORD}")
    for field in schema():
        if field.name in ("seq", "action", "verbatim"):
            continue
        column = verbatim.column(field.name)
        filled = len(runs(verbatim, field.name)[1]) if field.name in PAGE_LISTS else len(column) - column.null_count
        if filled:
            raise ValueError(f"a verbatim event has {field.name!r} too")
