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
    runs_of,
    schema,
)
from kvproof.conformance.traces.records import LONGEST_RECORD

TERMS_BY_GROUP = {group: tuple(f"{group}_{term}" for term in TERMS) for group in ("terms", "window_terms")}


def batch_of(block: Block) -> Any:
    """The record batch of a block of events (`pyarrow.RecordBatch`), checked: its seqs and the columns that are stored.

    Raises BlockError.
    """
    import numpy as np

    pa = pyarrow()
    try:
        batch = _read(block.payload)
        batch.validate(full=True)
        if len(batch) != block.events or not block.events:
            raise ValueError(f"{len(batch)} events, {block.events} in its head")
        _check(batch, block.first_seq)
        if "seq" not in batch.schema.names:
            seqs = np.arange(block.first_seq, block.first_seq + len(batch), dtype=np.int64)
            batch = batch.add_column(0, schema().field("seq"), pa.array(seqs))
    except (pa.ArrowException, ValueError, KeyError, OSError, struct.error, OverflowError, MemoryError) as error:
        what = " ".join(str(error).split())
        raise BlockError(block.number, block.offset, f"its payload is no block of events: {what}") from error
    return batch


def _read(payload: Any) -> Any:
    """The one batch of a stream, as it was written. pyarrow checks the flatbuffers of each message that it reads."""
    pa = pyarrow()
    batches = 0
    for message in pa.ipc.MessageReader.open_stream(payload):
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("buffers are compressed a second time")
        if not batches and message.type == "schema":
            _check_columns(message.serialize().to_pybytes())
        batches += message.type == "record batch"
    if batches != 1:
        raise ValueError(f"{batches} record batches, expected 1")
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_next_batch()


@functools.lru_cache(maxsize=64)
def _is_compressed(metadata: bytes) -> bool:
    """Whether a message says that its buffers are compressed.

    Arrow would then allocate what each buffer claims to unpack to, before anything bounds it: a payload of 256 MiB may hold
    frames that unpack to terabytes. pyarrow does not say whether a message is compressed, so this one field is looked up in
    the flatbuffer: Message.header is field 2, of the type in field 1; a DictionaryBatch (2) holds a RecordBatch (3) in
    field 1; RecordBatch.compression is field 3.
    """

    def number(form: str, place: int) -> int:
        return int(struct.unpack_from(form, metadata, place)[0])

    def field(table: int, index: int) -> int:
        """Where a field of a table is stored; 0 if it is absent."""
        fields = table - number("<i", table)
        if fields < 0:
            raise ValueError("a message that points outside itself")
        place = 4 + 2 * index
        inside = number("<H", fields + place) if place < number("<H", fields) else 0
        return table + inside if inside else 0

    def table_in(table: int, index: int) -> int:
        place = field(table, index)
        if not place:
            raise ValueError("a message without a header or data")
        return place + number("<I", place)

    message = number("<I", 0)
    header, kind = table_in(message, 2), metadata[field(message, 1)]
    if kind == 2:
        header = table_in(header, 1)
    return kind in (2, 3) and field(header, 3) != 0


@functools.lru_cache(maxsize=64)
def _check_columns(schema_message: bytes) -> None:
    """Compare the schema of a stream with ours. The blocks of a trace have but a few, and most the one before's."""
    found = pyarrow().ipc.read_schema(pyarrow().py_buffer(schema_message))
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


def _check(batch: Any, first_seq: int) -> None:
    """The rules of docs/columnar.md that pyarrow does not know."""
    stored = {name: batch.column(place) for place, name in enumerate(batch.schema.names) if name in _looked_at()}
    for name in _never_null() & stored.keys():
        if stored[name].null_count:
            raise ValueError(f"column {name!r} has a null")
    if "seq" in stored:
        seqs = stored["seq"].to_numpy()
        if seqs[0] != first_seq or (seqs[1:] <= seqs[:-1]).any():
            raise ValueError(f"its events are out of order or do not start at {first_seq}")
    if not any(map(stored["action"].dictionary.equals, _lists_of_actions())):
        raise ValueError("the dictionary of its actions is another one")
    for name in NAMES:
        if name in stored and stored[name].dictionary.null_count:
            raise ValueError(f"a name of {name} is null")
    for group, names in TERMS_BY_GROUP.items():
        terms = [stored[name] for name in names if name in stored]
        valid = [term.is_valid() for term in terms if term.null_count < len(batch)]
        if valid and (len(valid) < len(TERMS) or any(each != valid[0] for each in valid)):
            raise ValueError(f"some of {group} are missing")
    _check_lists({name: stored[name] for name in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL) if name in stored})
    if "verbatim" in stored and stored["verbatim"].null_count < len(batch):
        _check_verbatim(batch)


@functools.cache
def _never_null() -> frozenset[str]:
    return frozenset(field.name for field in schema() if not field.nullable)


@functools.cache
def _looked_at() -> frozenset[str]:
    """Columns of which these rules say anything."""
    return _never_null().union(NAMES, *TERMS_BY_GROUP.values(), PAGE_LISTS, PAGE_LISTS_OR_NULL, ("verbatim",))


@functools.cache
def _lists_of_actions() -> tuple[Any, ...]:
    """The list of today, and that of files from before an abort that was asked for was an event: its codes are the same."""
    names = pyarrow().array(ACTIONS, pyarrow().utf8())
    return names, names[: ACTIONS.index("ask_abort")]


def _check_lists(lists: dict[str, Any]) -> None:
    import numpy as np

    runs = {name: runs_of(column) for name, column in lists.items()}
    for name, (_, starts, counts) in runs.items():
        if lists[name].values.null_count:
            raise ValueError(f"a run of {name} is null")
        if len(counts) and (counts.min() < 1 or np.add(starts, counts, dtype=np.int64).max() > LARGEST_NUMBER + 1):
            raise ValueError(f"a run of {name} is empty or leaves the range of page ids")
    for name, (offsets, _, counts) in runs.items():
        # Runs are short and lists may be long: what a list unpacks to is bounded before it is unpacked.
        if counts.sum(dtype=np.int64) > MOST_PAGES:
            pages = np.diff(np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[offsets])
            if pages.max() > MOST_PAGES:
                raise ValueError(f"{name} of an event names {pages.max()} pages; a list has at most {MOST_PAGES}")
        if lists[name].null_count and len(lists[name].flatten()) < offsets[-1] - offsets[0]:
            raise ValueError(f"{name} names pages where it is null")


def _check_verbatim(batch: Any) -> None:
    """A verbatim event has nothing in its other columns: nothing may be there that only some readers look at."""
    verbatim = batch.filter(batch.column("verbatim").is_valid())
    if (longest := max(len(text.as_buffer()) for text in verbatim.column("verbatim"))) > LONGEST_RECORD:
        raise ValueError(f"a verbatim event of {longest} bytes; a record has at most {LONGEST_RECORD}")
    for name, column in zip(verbatim.schema.names, verbatim.columns, strict=True):
        if name in ("seq", "action", "verbatim"):
            continue
        filled = len(runs_of(column)[1]) if name in PAGE_LISTS else len(column) - column.null_count
        if filled:
            raise ValueError(f"a verbatim event has {name!r} too")
