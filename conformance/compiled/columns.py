"""Events in arrays: a record batch of a columnar trace, or lines that were scanned, as the loop reads them.

Names are numbered over the whole trace: a session has a ledger, and so has each turn, for itself (an ordinary request). What
is judged as an event and not here (`verbatim`) is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from kvproof.conformance.compiled.build import compiled_fill
from kvproof.conformance.compiled.layout import ACTION, COLUMNS, LISTS, ODD, Array, EventArrays, row_length
from kvproof.conformance.compiled.lines import ScannedLines
from kvproof.conformance.compiled.parts import PartsOfLines
from kvproof.conformance.traces.columnar import ColumnarReader
from kvproof.conformance.traces.columnar_events import events_of
from kvproof.conformance.traces.columnar_schema import ABSENT, FLAGS, NUMBERS, PAGE_LISTS_OR_NULL, runs, schema
from kvproof.conformance.traces.columnar_schema import numbers as in_numbers
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.spec.trace import Event

ROOM_FOR_PAGES = 2**20
"""Pages of all lists together up to which the longest one is not looked for."""
NO_BITS: Array = np.frombuffer(b"", np.uint8)
NO_NUMBERS: Array = np.frombuffer(b"", np.int32)


@dataclass
class Names:
    """Sessions and turns of a trace, in order of appearance, and the ledgers that they have."""

    keys: list[str] = field(default_factory=list)
    """The key of each ledger, as the interpreted checker calls it."""
    ledgers: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    """Session to ledger."""
    turns: dict[str, int] = field(default_factory=dict)
    """Turn to its number."""
    own_ledgers: list[int] = field(default_factory=list)
    """Of each turn, the ledger that it has as an ordinary request."""

    def of_session(self, name: str) -> int:
        if name not in self.sessions:
            self.sessions[name] = self._new_ledger(f"session {name}")
        return self.sessions[name]

    def of_turn(self, name: str) -> int:
        if name not in self.turns:
            self.turns[name] = len(self.turns)
            self.own_ledgers.append(self._new_ledger(f"request {name}"))
        return self.turns[name]

    def _new_ledger(self, key: str) -> int:
        self.ledgers[key] = len(self.keys)
        self.keys.append(key)
        return self.ledgers[key]


@dataclass(frozen=True)
class EventBatch:
    """Events in arrays, and as objects where those are asked for."""

    length: int
    arrays: EventArrays
    """There may be room for more than are there."""
    longest_list: int
    """At least the pages of the longest list."""
    events: Callable[[int, int], Iterator[Event]]
    """Some of them, from the first to before the last."""

    def __len__(self) -> int:
        return self.length


def arrays_of(batch: Any, names: Names) -> EventBatch:
    """A record batch, or scanned lines, as arrays; new names get their numbers."""
    if isinstance(batch, ScannedLines):
        arrays = batch.numbered(names.of_session, names.of_turn)
        return EventBatch(len(batch), arrays, batch.longest_list, batch.events)
    arrays = _arrays_of_columns(batch, names)
    return EventBatch(len(batch), arrays, _longest_list(arrays), partial(_events_of_columns, batch))


def first_seq(batch: Any) -> int:
    return batch.first_seq if isinstance(batch, ScannedLines) else int(batch.column("seq")[0].as_py())


def events_in(batch: Any, first: int = 0) -> Iterator[Event]:
    """The events of a record batch or of scanned lines as objects, from one of them on."""
    events = batch.events if isinstance(batch, ScannedLines) else partial(_events_of_columns, batch)
    return events(first, len(batch))


def _events_of_columns(batch: Any, first: int, last: int) -> Iterator[Event]:
    return events_of(batch.slice(first, last - first))


def _longest_list(arrays: EventArrays) -> int:
    pages = int(arrays.runs[:, 1].sum(dtype=np.int64))
    if pages <= ROOM_FOR_PAGES:
        return pages
    totals = np.concatenate(([0], np.cumsum(arrays.runs[:, 1], dtype=np.int64)))
    return int((totals[arrays.ends] - totals[arrays.begins]).max(initial=0))


def _arrays_of_columns(batch: Any, names: Names) -> EventArrays:
    n = len(batch)
    room = row_length(n)
    whole_table: Array = np.full((len(COLUMNS), room), ABSENT, np.int32)
    table = whole_table[:, :n]
    table[ACTION] = batch.column("action").indices.to_numpy()
    for name, number in (("session", names.of_session), ("turn", names.of_turn)):
        _fill_with_numbers(table[COLUMNS[name]], batch.column(name), number)
    for row, place in _plain_columns():
        if (column := batch.column(place)).null_count < n:
            _fill(table[row], column, ABSENT)
    for name in PAGE_LISTS_OR_NULL:
        if batch.column(name).null_count < n:
            table[COLUMNS[name], _is_valid(batch.column(name))] = 0
    steps = in_numbers(batch, "step").astype(np.int64)
    table[ODD] = 0
    if batch.column("verbatim").null_count < n:
        table[ODD] = _is_valid(batch.column("verbatim"))
    if batch.column("step").null_count < (steps == ABSENT).sum():
        # A step may be any number of 64 bits, also the one that stands for null.
        table[ODD] |= (steps == ABSENT) & _is_valid(batch.column("step"))
    lists = [runs(batch, name) for name in LISTS]
    sizes = [0, *accumulate(len(starts) for _, starts, _ in lists)]
    begins: Array = np.zeros((len(LISTS), room), np.int32)
    ends: Array = np.zeros((len(LISTS), room), np.int32)
    pairs: Array = np.empty((sizes[-1], 2), np.int32)
    for place, ((where, starts, counts), size) in enumerate(zip(lists, sizes[:-1], strict=True)):
        if not len(starts):
            continue
        np.add(where[:-1], size, out=begins[place, :n])
        np.add(where[1:], size, out=ends[place, :n])
        pairs[size : size + len(starts), 0], pairs[size : size + len(starts), 1] = starts, counts
    return EventArrays(whole_table, steps, begins, ends, pairs)


@cache
def _plain_columns() -> list[tuple[int, int]]:
    """Row of the table and place among the columns of a batch, of each flag and number."""
    return [(COLUMNS[name], schema().get_field_index(name)) for name in (*FLAGS, *NUMBERS)]


def _fill(row: Array, column: Any, nothing: int) -> None:
    """A row of the table from a column of numbers or flags: `nothing` where that is null."""
    if column.null_count == len(column):
        row[:] = nothing
        return
    last = column.offset + len(column)
    valid, values = column.buffers()
    bits = NO_BITS if valid is None else _read_only(valid, np.uint8, -(-last // 8))
    if column.type.bit_width == 1:
        compiled_fill()(NO_NUMBERS, _read_only(values, np.uint8, -(-last // 8)), bits, column.offset, nothing, row)
    else:
        compiled_fill()(_read_only(values, np.int32, last), NO_BITS, bits, column.offset, nothing, row)


def _read_only(buffer: Any, kind: Any, length: int) -> Array:
    """What stands in a buffer. Always of the same type, for which numba has compiled."""
    array: Array = np.frombuffer(buffer, kind, length)
    array.flags.writeable = False
    return array


def _fill_with_numbers(row: Array, column: Any, number: Callable[[str], int]) -> None:
    """The number of each name, -1 where there is none."""
    known = np.array([*map(number, column.dictionary.to_pylist()), -1], np.int32)
    _fill(row, column.indices, -1)
    row[:] = known[row]


def _is_valid(column: Any) -> Array:
    return column.is_valid().to_numpy(zero_copy_only=False)


def batches(reader: TraceReader) -> Iterator[Any]:
    """The events of a trace in parts, however they are stored: record batches, or scanned lines."""
    return reader.batches() if isinstance(reader, ColumnarReader) else iter(PartsOfLines(reader))
