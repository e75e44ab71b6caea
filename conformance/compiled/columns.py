"""Events in arrays: a record batch of a trace as the loop reads it.

Names are numbered over the whole trace: a session has a ledger, and so has each turn, for itself (an ordinary request). What
is judged as an event and not here (`verbatim`) is marked.

The arrays of a batch are filled into those of the batch before it. Memory that was just used costs a tenth of fresh memory,
and a row of a column that neither batch has stays as it is. Columns cannot be the rows themselves: what Arrow has where a value
is null may be anything, and the loop would have to ask for validity at each of its readings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvproof.conformance.compiled.build import compiled_fill
from kvproof.conformance.compiled.layout import (
    ACTION,
    COLUMNS,
    FLAG_COLUMN,
    LISTS,
    NUMBER_COLUMN,
    ODD,
    SESSION,
    STEP_COLUMN,
    TURN,
    Array,
    EventArrays,
    row_length,
)
from kvproof.conformance.replay.replayer import own_ledger
from kvproof.conformance.traces.columnar_events import COLUMNS_OF, EventColumns, events_of
from kvproof.conformance.traces.columnar_schema import ABSENT, FLAGS, NAMES, NUMBERS, PAGE_LISTS_OR_NULL
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.spec.trace import Event

ROOM_FOR_PAGES = 2**20
"""Pages of all lists together up to which the longest one is not looked for."""
NOTHING = {ODD: 0, SESSION: -1, TURN: -1}
"""What a row has where an event has no such value, if that is not ABSENT."""
ROWS_OF: dict[str, Array] = {
    field: np.array([[COLUMNS[column]] for column in columns])
    for field, columns in COLUMNS_OF.items()
    if COLUMNS.keys() >= {*columns}
}
"""Of each field of an event its rows of the table."""
ROWS = {**COLUMNS, "verbatim": ODD}
"""Of each column of a trace its row of the table."""
KINDS = {
    **dict.fromkeys((*FLAGS, *PAGE_LISTS_OR_NULL, "verbatim"), FLAG_COLUMN),
    **dict.fromkeys((*NAMES, *NUMBERS), NUMBER_COLUMN),
    "step": STEP_COLUMN,
}
"""Columns that `fill_columns` brings into the arrays, in this order: a step may mark its event as odd, after `verbatim`."""
VALUES = {"step", *FLAGS, *NAMES, *NUMBERS}


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
            self.own_ledgers.append(self._new_ledger(own_ledger(name)))
        return self.turns[name]

    def numbers_of(self, column: str, texts: Iterable[str]) -> list[int]:
        """The numbers of some names of a column, of sessions or turns."""
        return [*map({"session": self.of_session, "turn": self.of_turn}[column], texts)]

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
        columns = {n: c for n, c in zip(batch.schema.names, batch.columns, strict=True) if c.null_count < self.events}
        if not columns:
            self.pages = 0
            return
        if "step" not in columns:
            self.steps[: self.events] = ABSENT
        lists = {LISTS[name]: columns[name] for name in columns.keys() & LISTS.keys() if len(columns[name].values)}
        self._empty_others({ROWS[name] for name in columns.keys() & ROWS.keys()}, set(lists))
        self._row(ACTION)[:] = columns["action"].indices.to_numpy()
        known = {
            name: np.array([*names.numbers_of(name, columns[name].dictionary.to_pylist()), -1], np.int32)
            for name in NAMES
            if name in columns
        }
        nothing = {"verbatim": 0, **{name: len(numbers) - 1 for name, numbers in known.items()}}
        sources = [_column_source(n, columns[n], nothing.get(n, ABSENT)) for n in KINDS if n in columns]
        list_sources = [_list_source(row, column) for row, column in lists.items()]
        self._make_room_for_runs(sum(source[-1] for source in list_sources))
        any_odd, self.pages = compiled_fill()(
            np.array(sources, np.int64).reshape(-1, 6),
            np.array(list_sources, np.int64).reshape(-1, 6),
            self.events,
            *self.arrays(),
        )
        if any_odd:
            self._filled.add(ODD)
        if "cause" in columns:  # what it names is looked at where events are judged as events
            self._row(ODD)[columns["cause"].is_valid().to_numpy(zero_copy_only=False)] = 1
            self._filled.add(ODD)
        for name, numbers in known.items():
            row = self._row(COLUMNS[name])
            np.take(numbers, row, out=row, mode="clip")

    def _empty_others(self, rows: set[int], lists: set[int]) -> None:
        """Empty the rows that the batch before filled and this one does not."""
        for row in self._filled - rows:
            self.table[row] = NOTHING.get(row, ABSENT)
        for which in self._filled_lists - lists:
            self.begins[which], self.ends[which] = 0, 0
        self._filled, self._filled_lists = rows, lists

    def fill_from(self, columns: EventColumns, names: Names) -> None:
        """Replace what is there by events that are no record batch yet: for a few of them that would take longer than this."""
        n = self.events = len(columns)
        self.table[:] = self._empty
        self.steps[:], self.begins[:], self.ends[:] = ABSENT, 0, 0
        self._filled, self._filled_lists = set(range(len(COLUMNS))), set(LISTS.values())
        self.table[ACTION, :n] = columns.actions
        self.table[ODD, list(columns.verbatim)] = 1
        for name, events, values in columns.cells():
            if name == "step":
                self.steps[events] = values[:, 0]
                self.table[ODD, np.array(events)[values[:, 0] == ABSENT]] = 1
            elif name == "cause":
                self.table[ODD, events] = 1
            elif name in NAMES:
                known = np.array(names.numbers_of(name, columns.names(name)), np.int32)
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
                self.table[COLUMNS[name], lists.rows] = 1
        self.pages = int(self.runs[:size, 1].sum(dtype=np.int64))

    def _make_room_for_runs(self, total: int) -> None:
        if total > len(self.runs):
            self.runs = np.empty((total + total // 4, 2), np.int32)

    def _row(self, row: int) -> Array:
        return self.table[row, : self.events]


@dataclass(frozen=True)
class EventBatch:
    """Events in arrays, and as objects where those are asked for."""

    length: int
    arrays: EventArrays
    """There may be room for more than are there."""
    longest_list: int
    """At least the pages of the longest list."""
    first_seq: int
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

    return EventBatch(len(batch), names.room.arrays(), _longest_list(names.room), first_seq(batch), events)


def first_seq(batch: Any) -> int:
    """The seq of the first event of a record batch, or of `EventColumns`; 0 if there is none."""
    if len(batch) == 0:
        return 0
    return batch.first_seq if isinstance(batch, EventColumns) else int(batch.column("seq")[0].as_py())


def events_in(batch: Any, first: int = 0) -> Iterator[Event]:
    """The events of a record batch as objects, from one of them on."""
    return events_of(batch.slice(first))


def _longest_list(room: Room) -> int:
    if room.pages <= ROOM_FOR_PAGES:
        return room.pages
    totals = np.concatenate(([0], np.cumsum(room.runs[:, 1], dtype=np.int64)))
    begins, ends = room.begins[:, : room.events], room.ends[:, : room.events]
    return int((totals[ends] - totals[begins]).max(initial=0))


def _column_source(name: str, column: Any, nothing: int) -> tuple[int, int, int, int, int, int]:
    """A column as `fill_columns` takes it."""
    indices = column.indices if name in NAMES else column
    buffers = indices.buffers()
    valid = 0 if buffers[0] is None else buffers[0].address
    # Of a list or a text it matters here whether there is one.
    values = buffers[1].address if name in VALUES else valid
    return KINDS[name], ROWS.get(name, ODD), values, valid, indices.offset, nothing


def _list_source(row: int, lists: Any) -> tuple[int, int, int, int, int, int]:
    """A page list column as `fill_lists` takes it."""
    inner = lists.values
    starts, counts = inner.field(0), inner.field(1)
    addresses = (numbers.buffers()[1].address + 4 * numbers.offset for numbers in (starts, counts))
    return row, lists.buffers()[1].address, *addresses, lists.offset, len(inner)


def batches(reader: TraceReader) -> Iterator[Any]:
    """The events of a trace in parts, as record batches of the columns that are not null throughout."""
    return reader.stored_batches()
