"""Whether the payload of a block holds what its head and docs/columnar.md say, before anything is read from it.

A checksum shows that a file is as it was written; these checks also hold against a file that was written to deceive:
code that reads columns may take indices, offsets and counts as they are.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from kvproof.conformance.traces.columnar_blocks import Block, BlockError
from kvproof.conformance.traces.columnar_events import MOST_PAGES
from kvproof.conformance.traces.columnar_schema import (
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
from kvproof.conformance.traces.json_lines import LONGEST_RECORD


def batch_of(block: Block) -> Any:
    """The record batch of a block of events (`pyarrow.RecordBatch`), checked. Raises BlockError."""
    pa = pyarrow()
    try:
        found, there = _read(block.payload)
        found.validate(full=True)
        batch = _completed(found, there, block.first_seq)
        _check(batch, block, there)
    except (pa.ArrowException, ValueError, KeyError, OSError, struct.error, OverflowError, MemoryError) as error:
        what = " ".join(str(error).split())
        raise BlockError(block.number, block.offset, f"its payload is no block of events: {what}") from error
    return batch


def _read(payload: Any) -> tuple[Any, frozenset[str]]:
    """The batch as it was written, and the columns that are in it."""
    pa = pyarrow()
    batches, there = 0, None
    for message in pa.ipc.MessageReader.open_stream(payload):
        if _is_packed(message.metadata.to_pybytes()):
            raise ValueError("buffers are compressed a second time")
        if there is None:
            there = _columns_of(message.serialize().to_pybytes())
        batches += message.type == "record batch"
    if batches != 1 or there is None:
        raise ValueError(f"{batches} record batches, expected 1")
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_next_batch(), there


@functools.lru_cache(maxsize=64)
def _columns_of(first_message: bytes) -> frozenset[str]:
    """Of a stream, whose first message is its schema. The blocks of a trace have but a few, and most the one before's."""
    found = pyarrow().ipc.read_schema(pyarrow().py_buffer(first_message))
    _compare_schema(found)
    return frozenset(found.names)


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


def _completed(batch: Any, there: frozenset[str], first_seq: int) -> Any:
    """The batch with all columns, in their order. A writer leaves out what is null in a whole block, and seqs without
    a gap; a trace of an older kvproof has fewer columns for the same reason: nothing of the others was in it.
    """
    columns: list[Any] = list(_nulls(there, len(batch)))
    for place, name in enumerate(_names()):
        if columns[place] is None:
            columns[place] = batch.column(name) if name in there else _seqs(first_seq, len(batch))
    return pyarrow().record_batch(columns, schema=schema())


@functools.lru_cache(maxsize=32)
def _nulls(there: frozenset[str], length: int) -> list[Any]:
    """A column without a value for each that is missing, None for the others and for seqs. Blocks are of one length, and
    arrays are never changed: all share them."""
    return [
        None if field.name in there or field.name == "seq" else pyarrow().nulls(length, field.type)
        for field in schema()
    ]


def _seqs(first_seq: int, length: int) -> Any:
    import numpy as np

    return pyarrow().array(np.arange(first_seq, first_seq + length, dtype=np.int64))


@functools.cache
def _names() -> list[str]:
    return list(schema().names)


@functools.cache
def _never_null() -> list[str]:
    return [field.name for field in schema() if not field.nullable]


def _check(batch: Any, block: Block, there: frozenset[str]) -> None:
    if len(batch) != block.events or not block.events:
        raise ValueError(f"{len(batch)} events, {block.events} in its head")
    for name in _never_null():
        if batch.column(name).null_count:
            raise ValueError(f"column {name!r} has a null")
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
        valid = [column.is_valid() for column in columns]
        if any(column != valid[0] for column in valid):
            raise ValueError(f"some of {group} are missing")
    for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
        if column in there:
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
