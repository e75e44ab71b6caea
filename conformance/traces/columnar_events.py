"""Events to columns and back. What the columns mean is said in `columnar_schema.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAGS,
    LARGEST_NUMBER,
    LARGEST_WIDE_NUMBER,
    NAMES,
    NUMBERS,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    WIDE_NUMBERS,
    pyarrow,
    runs,
    schema,
)
from kvproof.conformance.traces.json_lines import line_of
from kvproof.spec.trace import RECORD, Event

if TYPE_CHECKING:
    import numpy as np

MOST_PAGES = 2**24
"""Pages of one list: above what a device can hold, and what a list of runs may unpack to."""
EVENTS_OF_A_BLOCK = 16384
RUNS_OF_A_BLOCK = 2**20
TEXT_OF_A_BLOCK = 2**24

_CODES = {action: code for code, action in enumerate(ACTIONS)}
_GROUPS = (("after_", "after"), ("param_", "params"), ("terms_", "terms"), ("window_terms_", "window_terms"))
_NUMPY_FROM = 64

Runs = tuple[list[int], list[int]]
"""Starts and counts."""


class EventColumns:
    """Collects events and gives them as one record batch."""

    def __init__(self) -> None:
        self._clear()

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def first_seq(self) -> int:
        return self._seqs[0]

    @property
    def full(self) -> bool:
        """Whether a block of this should be written before it outgrows the limits, however long its lists are."""
        return len(self) >= EVENTS_OF_A_BLOCK or self._runs >= RUNS_OF_A_BLOCK or self._text >= TEXT_OF_A_BLOCK

    def add(self, event: Event) -> None:
        """Append an event. Raises UserError if it names more pages in one list than any device holds."""
        lists = _lists_of(event)
        index = len(self._seqs)
        self._seqs.append(event.seq)
        self._actions.append(_CODES[event.action])
        if lists is None or not self._fits(cells := list(_cells(event))):
            self._verbatim[index] = text = line_of(event).decode()
            self._text += len(text)
            return
        for column, value in cells:
            rows, values = self._cells[column]
            rows.append(index)
            values.append(value)
        for column in NAMES:
            name = getattr(event, column)
            if name is not None:
                known = self._names[column]
                if name not in known:
                    self._text += len(name)
                    known[name] = len(known)
                self._name_rows[column].append(index)
                self._name_codes[column].append(known[name])
        for column, (starts, counts) in lists.items():
            into = self._lists[column]
            into.rows.append(index)
            into.ends.append(len(counts))
            into.starts += starts
            into.counts += counts
            self._runs += len(counts)

    def take(self) -> Any:
        """The record batch of all events so far (`pyarrow.RecordBatch`); what comes next starts a new one."""
        import numpy as np

        pa = pyarrow()
        arrays = {
            "seq": pa.array(self._seqs, pa.int64()),
            "action": pa.DictionaryArray.from_arrays(pa.array(self._actions, pa.int8()), list(ACTIONS)),
            **{column: self._name_array(column) for column in NAMES},
            **{column: self._number_array(column, np.int64) for column in WIDE_NUMBERS},
            **{column: self._number_array(column, np.bool_) for column in FLAGS},
            **{column: self._number_array(column, np.int32) for column in NUMBERS},
            **{column: self._list_array(column) for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)},
            "verbatim": pa.array([self._verbatim.get(i) for i in range(len(self))], pa.utf8())
            if self._verbatim
            else pa.nulls(len(self), pa.utf8()),
        }
        batch = pa.record_batch([arrays[name] for name in schema().names], schema=schema())
        self._clear()
        return batch

    def _clear(self) -> None:
        self._seqs: list[int] = []
        self._actions: list[int] = []
        self._cells: dict[str, tuple[list[int], list[int]]] = {
            column: ([], []) for column in (*WIDE_NUMBERS, *FLAGS, *NUMBERS)
        }
        self._names: dict[str, dict[str, int]] = {column: {} for column in NAMES}
        self._name_rows: dict[str, list[int]] = {column: [] for column in NAMES}
        self._name_codes: dict[str, list[int]] = {column: [] for column in NAMES}
        self._lists = {column: _Lists() for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)}
        self._verbatim: dict[int, str] = {}
        self._runs = 0
        self._text = 0

    def _fits(self, cells: list[tuple[str, Any]]) -> bool:
        """Whether every value has a column, is of its kind and within its range."""
        for column, value in cells:
            if value is None or column not in self._cells or (type(value) is bool) != (column in _FLAG_COLUMNS):
                return False
            most = LARGEST_WIDE_NUMBER if column in WIDE_NUMBERS else LARGEST_NUMBER
            if not -most <= value <= most:
                return False
        return True

    def _number_array(self, column: str, kind: Any) -> Any:
        return _spread(len(self), *self._cells[column], kind)

    def _name_array(self, column: str) -> Any:
        import numpy as np

        pa = pyarrow()
        codes = _spread(len(self), self._name_rows[column], self._name_codes[column], np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(self._names[column]), pa.utf8()))

    def _list_array(self, column: str) -> Any:
        import numpy as np

        pa = pyarrow()
        lists, field = self._lists[column], schema().field(column)
        lengths = np.zeros(len(self) + 1, np.int32)
        lengths[np.asarray(lists.rows, np.int64) + 1] = lists.ends
        absent = None
        if field.nullable:
            absent = np.ones(len(self), np.bool_)
            absent[lists.rows] = False
            absent = pa.array(absent)
        inner = pa.StructArray.from_arrays(
            [pa.array(lists.starts, pa.int32()), pa.array(lists.counts, pa.int32())],
            fields=list(field.type.value_type),
        )
        return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths, dtype=np.int32)), inner, field.type, mask=absent)


class _Lists:
    """The page lists of one column: which events have one, with how many runs, and the runs."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends: list[int] = []
        self.starts: list[int] = []
        self.counts: list[int] = []


_FLAG_COLUMNS = frozenset(FLAGS)


def batches_of(events: Iterable[Event]) -> Iterator[Any]:
    """Events as record batches in the columns of a block: what a trace of lines is, in columns."""
    columns = EventColumns()
    for event in events:
        columns.add(event)
        if columns.full:
            yield columns.take()
    if len(columns):
        yield columns.take()


def events_of(batch: Any) -> Iterator[Event]:
    """The events of a record batch that `checked` let pass. Raises ValueError if a verbatim event is none."""
    rows: list[dict[str, Any]] = [
        {"seq": seq, "action": ACTIONS[code]}
        for seq, code in zip(batch.column("seq").to_pylist(), batch.column("action").indices.to_pylist(), strict=True)
    ]
    for column in (*WIDE_NUMBERS, "row"):
        for index, value in _present(batch.column(column)):
            rows[index][column] = value
    for column in NAMES:
        names = batch.column(column).dictionary.to_pylist()
        for index, code in _present(batch.column(column).indices):
            rows[index][column] = names[code]
    for prefix, group in _GROUPS:
        for column in (*FLAGS, *NUMBERS):
            if column.startswith(prefix):
                name = column.removeprefix(prefix)
                for index, value in _present(batch.column(column)):
                    rows[index].setdefault(group, {})[name] = value
    lists = [(column, _PageLists(batch, column)) for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)]
    verbatim = dict(_present(batch.column("verbatim")))
    for index, fields in enumerate(rows):
        if index in verbatim:
            yield _verbatim(verbatim[index], fields)
            continue
        # Unpacked one event at a time: a free list may name every page of the pool, at every event.
        named = {column: pages[index] for column, pages in lists if index in pages}
        yield Event.model_validate({**fields, **named})


def _verbatim(text: str, fields: dict[str, Any]) -> Event:
    event = RECORD.validate_json(text)
    if not isinstance(event, Event) or fields != {"seq": event.seq, "action": event.action}:
        raise ValueError(f"event {fields['seq']}: its verbatim text is not the event of its other columns")
    return event


def _cells(event: Event) -> Iterator[tuple[str, Any]]:
    """The values of an event that have a column of their own, but names and lists."""
    for column in (*WIDE_NUMBERS, "row"):
        value = getattr(event, column)
        if value is not None:
            yield column, value
    # A parameter that is null is not one that is absent: it is among the values, and then fits no column.
    for name, value in event.params.items():
        yield f"param_{name}", value
    for name, value in event.after.__dict__.items():
        if value is not None:
            yield f"after_{name}", value
    for group in ("terms", "window_terms"):
        terms = getattr(event, group)
        if terms is not None:
            for name, value in terms.__dict__.items():
                yield f"{group}_{name}", value


def _lists_of(event: Event) -> dict[str, Runs] | None:
    """The page lists of an event as runs, empty ones only where that is an observation; None: a number is too large."""
    found: dict[str, Runs] = {}
    for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
        pages = getattr(event, column)
        if pages is None or (not pages and column in PAGE_LISTS):
            continue
        if len(pages) > MOST_PAGES:
            raise UserError(f"event {event.seq}: {column} names {len(pages)} pages; a list has at most {MOST_PAGES}")
        if pages and not (min(pages) > ABSENT and max(pages) <= LARGEST_NUMBER):
            return None
        found[column] = _runs_of(pages)
    return found


def _runs_of(pages: Sequence[int]) -> Runs:
    """Ascending neighbours are one run; anything else begins a new one."""
    if len(pages) >= _NUMPY_FROM:
        import numpy as np

        ids = np.asarray(pages, np.int64)
        begins = np.flatnonzero(np.diff(ids, prepend=ids[0]) != 1)
        return ids[begins].tolist(), np.diff(begins, append=len(ids)).tolist()
    starts: list[int] = []
    counts: list[int] = []
    following = None
    for page in pages:
        if page == following:
            counts[-1] += 1
        else:
            starts.append(page)
            counts.append(1)
        following = page + 1
    return starts, counts


def _spread(length: int, rows: list[int], values: list[int], kind: Any) -> Any:
    """An Arrow array with `values` at `rows` and null elsewhere."""
    import numpy as np

    pa = pyarrow()
    if not rows:
        return pa.nulls(length, pa.from_numpy_dtype(kind))
    spread: np.ndarray[Any, Any] = np.zeros(length, kind)
    spread[rows] = values
    absent = np.ones(length, np.bool_)
    absent[rows] = False
    return pa.array(spread, mask=absent)


def _present(array: Any) -> Iterator[tuple[int, Any]]:
    """Index and value of everything in a column that is not null."""
    if array.null_count == len(array):
        return iter(())
    if array.null_count == 0:
        return enumerate(array.to_pylist())
    import numpy as np

    present = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    return zip(present.tolist(), array.drop_null().to_pylist(), strict=True)


class _PageLists:
    """The page lists of one column. An event is in it if it has one, an empty one only where that is an observation."""

    def __init__(self, batch: Any, column: str) -> None:
        self._offsets, self._starts, self._counts = (array.tolist() for array in runs(batch, column))
        if schema().field(column).nullable:
            self._has = batch[column].is_valid().to_pylist()
        else:
            self._has = [begin < end for begin, end in itertools.pairwise(self._offsets)]

    def __contains__(self, index: int) -> bool:
        return bool(self._has[index])

    def __getitem__(self, index: int) -> tuple[int, ...]:
        pages: list[int] = []
        for run in range(self._offsets[index], self._offsets[index + 1]):
            pages += range(self._starts[run], self._starts[run] + self._counts[run])
        return tuple(pages)
