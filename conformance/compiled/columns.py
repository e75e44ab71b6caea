"""Events in arrays: a record batch of a trace as the loop reads it.

Names are numbered over the whole trace: a session has a ledger, and so has each turn, for itself (an ordinary request). What
is judged as an event and not here (`verbatim`) is marked.

The arrays of a batch are filled into those of the batch before it. Memory that was just used costs a tenth of fresh memory,
and a row of a column that neither batch has stays as it is. Columns cannot be the rows themselves: what Arrow has where a value
is null may be anything, and the loop would have to ask for validity at each of its readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvproof.conformance.compiled.build import compiled_fill
from kvproof.conformance.compiled.layout import (
    ACTION,
    COLUMNS,
    LISTS,
    ODD,
    SESSION,
    TURN,
    Array,
    EventArrays,
    row_length,
)
from kvproof.conformance.traces.columnar_events import COLUMNS_OF, EventColumns, events_of
from kvproof.conformance.traces.columnar_schema import ABSENT, PAGE_LISTS_OR_NULL, runs_of
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.spec.trace import Event

ROOM_FOR_PAGES = 2**20
"""Pages of all lists together up to which the longest one is not looked for."""
NO_BITS: Array = np.frombuffer(b"", np.uint8)
NO_NUMBERS: Array = np.frombuffer(b"", np.int32)
NOTHING = {ODD: 0, SESSION: -1, TURN: -1}
"""What a row has where an event has no such value, if that is not ABSENT."""
ROWS_OF: dict[str, Array] = {
    field: np.array([[COLUMNS[column]] for column in columns])
    for field, columns in COLUMNS_OF.items()
    if COLUMNS.keys() >= {*columns}
}
"""Of each field of an event its rows of the table."""


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
    room: Room | None = None
    """The arrays of the last batch, which those of the next one replace."""

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


class Room:
    """Arrays for batches of up to so many events."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.events = 0
        length = row_length(most)
        self._empty: Array = np.array([[NOTHING.get(row, ABSENT)] for row in range(len(COLUMNS))], np.int32)
        self.table: Array = np.repeat(self._empty, length, axis=1)
        self.steps: Array = np.full(most, ABSENT, np.int64)
        self.begins: Array = np.zeros((len(LISTS), length), np.int32)
        self.ends: Array = np.zeros((len(LISTS), length), np.int32)
        self.runs: Array = np.empty((0, 2), np.int32)
        self._filled: set[int] = set()
        """Rows of the table that hold anything."""
        self._filled_lists: set[int] = set()

    def arrays(self) -> EventArrays:
        return EventArrays(self.table, self.steps, self.begins, self.ends, self.runs)

    def fill(self, batch: Any, names: Names) -> None:
        """Replace what is there by the events of a batch."""
        self.events = len(batch)
        stored = dict(zip(batch.schema.names, batch.columns, strict=True))
        present = {name: column for name, column in stored.items() if column.null_count < self.events}
        numbers = {"session": names.of_session, "turn": names.of_turn}
        filled = set()
        for name, column in present.items():
            row = COLUMNS.get(name)
            if row is None:
                continue
            filled.add(row)
            if name == "action":
                self._row(row)[:] = column.indices.to_numpy()
            elif name in numbers:
                _fill_with_numbers(self._row(row), column, numbers[name])
            elif name in PAGE_LISTS_OR_NULL:
                self._row(row)[:] = np.where(_is_valid(column), 0, ABSENT)
            else:
                _fill(self._row(row), column, ABSENT)
        for row in self._filled - filled:
            self.table[row] = NOTHING.get(row, ABSENT)
        if "verbatim" in present:
            filled.add(ODD)
            self._row(ODD)[:] = _is_valid(present["verbatim"])
        self._fill_steps(present.get("step"), filled)
        self._filled = filled
        self._fill_lists(stored)

    def fill_from(self, columns: EventColumns, names: Names) -> None:
        """Replace what is there by events that are no record batch yet: for a few of them that would take longer than this."""
        n = self.events = len(columns)
        self.table[:] = self._empty
        self.steps[:], self.begins[:], self.ends[:] = ABSENT, 0, 0
        self._filled, self._filled_lists = set(range(len(COLUMNS))), set(LISTS.values())
        self.table[ACTION, :n] = columns.actions
        self.table[ODD, list(columns.verbatim)] = 1
        numbers = {"session": names.of_session, "turn": names.of_turn}
        for name, events, values in columns.cells():
            if name == "step":
                self.steps[events] = values[:, 0]
                self.table[ODD, np.array(events)[values[:, 0] == ABSENT]] = 1
            elif name in numbers:
                known = np.array([*map(numbers[name], columns.names(name))], np.int32)
                self.table[COLUMNS[name], events] = known[values[:, 0]]
            elif name in ROWS_OF:
                self.table[ROWS_OF[name], events] = values.T
        size = 0
        self._make_room_for_runs(sum(len(lists.starts) for lists in columns.lists.values()))
        for name, lists in columns.lists.items():
            ends = size + np.cumsum(lists.lengths)
            self.begins[LISTS[name], lists.rows], self.ends[LISTS[name], lists.rows] = ends - lists.lengths, ends
            runs = self.runs[size : size + len(lists.starts)]
            runs[:, 0], runs[:, 1] = lists.starts, lists.counts
            size += len(runs)
            if name in PAGE_LISTS_OR_NULL:
                self.table[COLUMNS[name], lists.rows] = 0
        self.pages = int(self.runs[:size, 1].sum(dtype=np.int64))

    def _make_room_for_runs(self, total: int) -> None:
        if total > len(self.runs):
            self.runs = np.empty((total + total // 4, 2), np.int32)

    def _row(self, row: int) -> Array:
        return self.table[row, : self.events]

    def _fill_steps(self, column: Any, filled: set[int]) -> None:
        steps = self.steps[: self.events]
        if column is None:
            steps[:] = ABSENT
            return
        steps[:] = (column.fill_null(ABSENT) if column.null_count else column).to_numpy()
        absent = steps == ABSENT
        if column.null_count < np.count_nonzero(absent):
            # A step may be any number of 64 bits, also the one that stands for null.
            self._row(ODD)[absent & _is_valid(column)] = 1
            filled.add(ODD)

    def _fill_lists(self, stored: dict[str, Any]) -> None:
        lists = {
            which: runs_of(stored[name]) for name, which in LISTS.items() if name in stored and len(stored[name].values)
        }
        total = sum(len(starts) for _, starts, _ in lists.values())
        self._make_room_for_runs(total)
        size = 0
        for which, (offsets, starts, counts) in lists.items():
            np.add(offsets[:-1], size, out=self.begins[which, : self.events])
            np.add(offsets[1:], size, out=self.ends[which, : self.events])
            self.runs[size : size + len(starts), 0], self.runs[size : size + len(starts), 1] = starts, counts
            size += len(starts)
        for which in self._filled_lists - lists.keys():
            self.begins[which], self.ends[which] = 0, 0
        self._filled_lists = set(lists)
        self.pages = int(self.runs[:size, 1].sum(dtype=np.int64))


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
    """A record batch, or `EventColumns`, as arrays; new names get their numbers.

    The arrays are good until the next ones with the same `names`.
    """
    if names.room is None or names.room.most < len(batch):
        names.room = Room(len(batch))
    if isinstance(batch, EventColumns):
        names.room.fill_from(batch, names)
    else:
        names.room.fill(batch, names)

    def events(first: int, last: int) -> Iterator[Event]:
        stored = batch.batch() if isinstance(batch, EventColumns) else batch
        return events_of(stored.slice(first, last - first))

    return EventBatch(len(batch), names.room.arrays(), _longest_list(names.room), events)


def first_seq(batch: Any) -> int:
    return int(batch.column("seq")[0].as_py())


def events_in(batch: Any, first: int = 0) -> Iterator[Event]:
    """The events of a record batch as objects, from one of them on."""
    return events_of(batch.slice(first))


def _longest_list(room: Room) -> int:
    if room.pages <= ROOM_FOR_PAGES:
        return room.pages
    totals = np.concatenate(([0], np.cumsum(room.runs[:, 1], dtype=np.int64)))
    begins, ends = room.begins[:, : room.events], room.ends[:, : room.events]
    return int((totals[ends] - totals[begins]).max(initial=0))


def _fill(row: Array, column: Any, nothing: int) -> None:
    """A row of the table from a column of numbers or flags: `nothing` where that is null."""
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
    _fill(row, column.indices, len(known) - 1)
    np.take(known, row, out=row, mode="clip")


def _is_valid(column: Any) -> Array:
    return column.is_valid().to_numpy(zero_copy_only=False)


def batches(reader: TraceReader) -> Iterator[Any]:
    """The events of a trace in parts, as record batches of the columns that are not null throughout."""
    return reader.stored_batches()
