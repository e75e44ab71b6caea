"""Events to columns and back. What the columns mean is said in `columnar_schema.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_schema import (
    ACTIONS,
    FLAG_PARAMS,
    FLAGS,
    FLAGS_AFTER,
    LARGEST_NUMBER,
    LARGEST_WIDE_NUMBER,
    NAMES,
    NUMBER_PARAMS,
    NUMBERS,
    NUMBERS_AFTER,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    TERMS,
    WIDE_NUMBERS,
    complete,
    pyarrow,
    runs_of,
    schema,
    schema_of,
)
from kvproof.conformance.traces.records import fields_of, line_of
from kvproof.spec.trace import RECORD, Event, Observed

MOST_PAGES = 2**24
"""Pages of one list: above what a device can hold, and what a list of runs may unpack to."""
EVENTS_OF_A_BLOCK = 16384
RUNS_OF_A_BLOCK = 2**20
TEXT_OF_A_BLOCK = 2**24

_CODES = {action: code for code, action in enumerate(ACTIONS)}
_NUMPY_FROM = 32
_SMALLEST = -LARGEST_NUMBER
_RECORD = ("record", "event")
_LARGEST = {"row": LARGEST_NUMBER, **dict.fromkeys(WIDE_NUMBERS, LARGEST_WIDE_NUMBER)}
_LISTS = {name: name for name in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)}
_NULLABLE = {name: None for name, field in Event.model_fields.items() if field.default is None}
_TERMS = ("terms", "window_terms")
CELLS = (*NAMES, *WIDE_NUMBERS, *FLAGS, *NUMBERS)
"""Columns that have one number for an event."""
_PLACE = {name: place for place, name in enumerate(CELLS)}
_KINDS = {
    **dict.fromkeys((*NAMES, *NUMBERS), "int32"),
    **dict.fromkeys(WIDE_NUMBERS, "int64"),
    **dict.fromkeys(FLAGS, "bool"),
}


def _columns_of(prefix: str, flags: Iterable[str], numbers: Iterable[str]) -> dict[type, dict[str, str]]:
    """Of a group of fields, by the type of the value: the column of each."""
    return {bool: {n: f"{prefix}_{n}" for n in flags}, int: {n: f"{prefix}_{n}" for n in numbers}}


_GROUPS: dict[str, dict[type, dict[str, Any]]] = {
    "after": _columns_of("after", FLAGS_AFTER, NUMBERS_AFTER) | {type(None): dict.fromkeys(Observed.model_fields)},
    "params": _columns_of("param", FLAG_PARAMS, NUMBER_PARAMS),  # one that is null is not one that is absent
    **{group: _columns_of(group, (), TERMS) for group in _TERMS},
}
_PLACES_IN = {
    group: {kind: {n: _PLACE.get(column) for n, column in columns.items()} for kind, columns in of_kind.items()}
    for group, of_kind in _GROUPS.items()
}


class EventColumns:
    """Collects events and gives them as one record batch.

    The fields of an event are those of its JSON line: what `spec.trace.Event` names, as plain Python values.
    """

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
        if self.add_fields(fields_of(event)):
            return
        for name in _LISTS:
            _bounded(event.seq, name, getattr(event, name) or ())
        self.verbatim[len(self)] = text = line_of(event).decode()
        self._text += len(text)
        self._seqs.append(event.seq)
        self.actions.append(_CODES[event.action])

    def add_fields(self, fields: Mapping[str, Any]) -> bool:
        """Append an event by its fields if each has a column and is of its type and range; False: nothing was appended.

        Of such fields `Event` makes no other event than of the columns. Raises UserError as `add` does.
        """
        places: list[int] = []
        values: list[int] = []
        names: list[tuple[str, str]] = []
        lists: list[tuple[str, list[int], list[int]]] = []
        try:
            seq, code = fields["seq"], _CODES[fields["action"]]
            if type(seq) is not int or not 0 <= seq <= LARGEST_WIDE_NUMBER:
                return False
            for name, value in fields.items():
                kind = type(value)
                if value is None:
                    _NULLABLE[name]
                elif kind is dict:
                    columns = _PLACES_IN[name]
                    if name in _TERMS and len(value) != len(TERMS):
                        return False
                    for inner, number in value.items():
                        place = columns[type(number)][inner]
                        if place is not None:
                            if not _SMALLEST <= number <= LARGEST_NUMBER:
                                return False
                            places.append(place)
                            values.append(number)
                elif kind is int:
                    if name != "seq":
                        if not -_LARGEST[name] <= value <= _LARGEST[name]:
                            return False
                        places.append(_PLACE[name])
                        values.append(value)
                elif kind is str:
                    if name in NAMES:
                        if not value.isascii():
                            value.encode()
                        names.append((name, value))
                    elif name != "action" and (name, value) != _RECORD:
                        return False
                elif kind is not list and kind is not tuple:
                    return False
                elif value or _LISTS[name] in PAGE_LISTS_OR_NULL:
                    lists.append((name, *_runs_of(_bounded(seq, _LISTS[name], value))))
        except (KeyError, TypeError, OverflowError, UnicodeError):  # no column, no plain value, no text
            return False
        for name, text in names:
            known = self.names[name]
            if text not in known:
                self._text += len(text)
                known[text] = len(known)
            places.append(_PLACE[name])
            values.append(known[text])
        index = len(self._seqs)
        self._rows += [index] * len(places)
        self._places += places
        self._values += values
        for name, starts, counts in lists:
            into = self.lists[name]
            into.rows.append(index)
            into.lengths.append(len(counts))
            into.starts += starts
            into.counts += counts
            self._runs += len(counts)
        self._seqs.append(seq)
        self.actions.append(code)
        return True

    def cells(self) -> tuple[Any, Any, Any]:
        """What events have in CELLS, in no order: the place of the column, the number of the event here, and the value; a name
        as its number in `names`. Three arrays of int64."""
        import numpy as np

        return np.array(self._places, np.int64), np.array(self._rows, np.int64), np.array(self._values, np.int64)

    def take(self) -> Any:
        """The record batch of all events so far (`pyarrow.RecordBatch`); what comes next starts a new one.

        It has no column that would be null throughout: `complete` adds those.
        """
        batch = self.batch()
        self._clear()
        return batch

    def batch(self) -> Any:
        """What `take` gives, and nothing is taken."""
        import numpy as np

        pa = pyarrow()
        arrays: dict[str, Any] = {
            "seq": pa.array(self._seqs, pa.int64()),
            "action": pa.DictionaryArray.from_arrays(pa.array(self.actions, pa.int8()), list(ACTIONS)),
        }
        places, rows, values = self.cells()
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(len(CELLS) + 1))
        for place, column in enumerate(CELLS):
            part = order[ends[place] : ends[place + 1]]
            if len(part):
                array = self._spread(rows[part], values[part], _KINDS[column])
                if column in NAMES:
                    array = pa.DictionaryArray.from_arrays(array, pa.array(list(self.names[column]), pa.utf8()))
                arrays[column] = array
        for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
            if column in self.lists or column in PAGE_LISTS:
                arrays[column] = self._list_array(column)
        if self.verbatim:
            arrays["verbatim"] = pa.array([self.verbatim.get(i) for i in range(len(self))], pa.utf8())
        stored = schema_of(frozenset(arrays))
        return pa.record_batch([arrays[name] for name in stored.names], schema=stored)

    def _clear(self) -> None:
        self.actions: list[int] = []
        """Indices into ACTIONS."""
        self.names: dict[str, dict[str, int]] = {column: {} for column in NAMES}
        self.lists: dict[str, PageLists] = defaultdict(PageLists)
        self.verbatim: dict[int, str] = {}
        self._seqs: list[int] = []
        self._places: list[int] = []
        self._rows: list[int] = []
        self._values: list[int] = []
        self._runs = 0
        self._text = 0

    def _spread(self, rows: Any, values: Any, kind: str) -> Any:
        """An Arrow array with `values` at `rows` and null elsewhere."""
        import numpy as np

        if len(rows) == len(self):
            return pyarrow().array(values.astype(kind))
        spread = np.zeros(len(self), kind)
        spread[rows] = values
        absent = np.ones(len(self), np.bool_)
        absent[rows] = False
        return pyarrow().array(spread, mask=absent)

    def _list_array(self, column: str) -> Any:
        import numpy as np

        pa = pyarrow()
        lists, field = self.lists[column], schema().field(column)
        lengths = np.zeros(len(self) + 1, np.int32)
        lengths[np.asarray(lists.rows, np.int64) + 1] = lists.lengths
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


class PageLists:
    """The page lists of one column: which events have one, with how many runs, and the runs."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.lengths: list[int] = []
        self.starts: list[int] = []
        self.counts: list[int] = []


def _in_range(number: int, largest: int) -> None:
    if not -largest <= number <= largest:
        raise OverflowError(number)


def _bounded(seq: int, name: str, pages: Sequence[int]) -> Sequence[int]:
    if len(pages) > MOST_PAGES:
        raise UserError(f"event {seq}: {name} names {len(pages)} pages; a list has at most {MOST_PAGES}")
    return pages


def batches_of(events: Iterable[Event]) -> Iterator[Any]:
    """Events as record batches in the columns of a block: what a trace of lines is, in columns."""
    columns = EventColumns()
    for event in events:
        columns.add(event)
        if columns.full:
            yield complete(columns.take())
    if len(columns):
        yield complete(columns.take())


def events_of(batch: Any) -> Iterator[Event]:
    """The events of a record batch that `batch_of` let pass. Raises ValueError if a verbatim event is none."""
    stored = dict(zip(batch.schema.names, batch.columns, strict=True))
    seqs, codes = stored["seq"].to_pylist(), stored["action"].indices.to_pylist()
    rows: list[dict[str, Any]] = [{"seq": s, "action": ACTIONS[c]} for s, c in zip(seqs, codes, strict=True)]
    for column in (*WIDE_NUMBERS, "row"):
        for index, value in _present(stored, column):
            rows[index][column] = value
    for column in NAMES:
        names = stored[column].dictionary.to_pylist() if column in stored else []
        for index, code in _present(stored, column, lambda array: array.indices):
            rows[index][column] = names[code]
    for group, columns in _GROUPS.items():
        for name, column in (columns[bool] | columns[int]).items():
            for index, value in _present(stored, column):
                rows[index].setdefault(group, {})[name] = value
    lists = [(column, _PageLists(column, stored[column])) for column in _LISTS if column in stored]
    verbatim = dict(_present(stored, "verbatim"))
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


def _runs_of(pages: Sequence[int]) -> tuple[list[int], list[int]]:
    """Starts and counts: ascending neighbours are one run; anything else begins a new one.

    Raises TypeError or OverflowError if one of them is no page id.
    """
    if not pages:
        return [], []
    if set(map(type, pages)) != {int}:
        raise TypeError(pages)
    first, last, length = pages[0], pages[-1], len(pages)
    if last - first == length - 1 and (length == 1 or [*pages] == [*range(first, last + 1)]):
        _in_range(first, LARGEST_NUMBER)
        _in_range(last, LARGEST_NUMBER)
        return [first], [length]
    _in_range(min(pages), LARGEST_NUMBER)
    _in_range(max(pages), LARGEST_NUMBER)
    if length >= _NUMPY_FROM:
        import numpy as np

        ids = np.array(pages, np.int64)
        begins = [0, *((ids[1:] - ids[:-1] != 1).nonzero()[0] + 1).tolist()]
        return [pages[at] for at in begins], [end - at for at, end in zip(begins, [*begins[1:], length], strict=True)]
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


def _present(
    stored: dict[str, Any], column: str, part: Callable[[Any], Any] = lambda a: a
) -> Iterator[tuple[int, Any]]:
    """Index and value of everything in a column that is not null."""
    if column not in stored or stored[column].null_count == len(stored[column]):
        return iter(())
    array = part(stored[column])
    if array.null_count == 0:
        return enumerate(array.to_pylist())
    import numpy as np

    present = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    return zip(present.tolist(), array.drop_null().to_pylist(), strict=True)


class _PageLists:
    """The page lists of one column. An event is in it if it has one, an empty one only where that is an observation."""

    def __init__(self, column: str, lists: Any) -> None:
        offsets, starts, counts = runs_of(lists)
        self._offsets, self._starts, self._counts = offsets.tolist(), starts.tolist(), counts.tolist()
        has = (
            lists.is_valid().to_numpy(zero_copy_only=False)
            if column in PAGE_LISTS_OR_NULL
            else offsets[1:] > offsets[:-1]
        )
        self._has = has.tolist()

    def __contains__(self, index: int) -> bool:
        return bool(self._has[index])

    def __getitem__(self, index: int) -> tuple[int, ...]:
        pages: list[int] = []
        for run in range(self._offsets[index], self._offsets[index + 1]):
            pages += range(self._starts[run], self._starts[run] + self._counts[run])
        return tuple(pages)
