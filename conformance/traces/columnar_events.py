"""Events to columns and back. What the columns mean is said in `columnar_schema.py`."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import astuple

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAGS,
    NAMES,
    NUMBERS,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    WIDE_NUMBERS,
    complete,
    pyarrow,
    runs_of,
    schema,
    schema_of,
)
from kvproof.conformance.traces.event_fields import GROUPS, NOTHING, PLAIN, EventFields, fitting
from kvproof.conformance.traces.records import fields_of, line_of
from kvproof.spec.trace import RECORD, Event

MOST_PAGES = 2**24
"""Pages of one list: above what a device can hold, and what a list of runs may unpack to."""
EVENTS_OF_A_BLOCK = 65536
RUNS_OF_A_BLOCK = 2**20
TEXT_OF_A_BLOCK = 2**24

_CODES: dict[str, int] = {action: code for code, action in enumerate(ACTIONS)}
_NUMPY_FROM = 32
_LISTS = (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)
_PREFIXES = {"params": "param"}
COLUMNS_OF = {
    **{name: (name,) for name in (*WIDE_NUMBERS, *NAMES, "row")},
    **{group: tuple(f"{_PREFIXES.get(group, group)}_{name}" for name in names) for group, names in GROUPS.items()},
}
"""Of each field with columns of numbers, flags or names: the columns."""
_KINDS = {
    **dict.fromkeys((*NAMES, *NUMBERS), "int32"),
    **dict.fromkeys(WIDE_NUMBERS, "int64"),
    **dict.fromkeys(FLAGS, "bool"),
}


class EventColumns:
    """Collects events and gives them as one record batch.

    The fields of an event are those of its JSON line: what `spec.trace.Event` names, as plain Python values.
    """

    def __init__(self) -> None:
        self._clear()

    def __len__(self) -> int:
        return self._events

    @property
    def first_seq(self) -> int:
        return self.of_all("seq")[0]

    @property
    def full(self) -> bool:
        """Whether a block of this should be written before it outgrows the limits, however long its lists are."""
        return len(self) >= EVENTS_OF_A_BLOCK or self._runs >= RUNS_OF_A_BLOCK or self._text >= TEXT_OF_A_BLOCK

    def add(self, event: Event) -> None:
        """Append an event. Raises UserError if it names more pages in one list than any device holds."""
        fields = fitting(event.seq, fields_of(event))
        if fields is None:
            for name in _LISTS:
                _require_bounded(event.seq, name, getattr(event, name) or ())
            self.verbatim[len(self)] = text = line_of(event).decode()
            self._text += len(text)
            fields = EventFields(seq=event.seq, action=event.action)
        self.add_fields(fields)

    def add_fields(self, fields: EventFields) -> None:
        """Append an event that fits the columns. Raises UserError as `add` does."""
        given = fields.alloc or fields.free or fields.window_alloc or fields.window_free
        if given or fields.shared is not None or fields.free_list is not None or fields.window_free_list is not None:
            self._add_lists(fields)
        self._text += len(fields.session or "") + len(fields.turn or "")
        if fields.params is not None:
            self._add_group("params", fields.params)
        if fields.after is not None:
            self._add_group("after", fields.after)
        if fields.terms is not None:
            self._add_group("terms", fields.terms)
        if fields.window_terms is not None:
            self._add_group("window_terms", fields.window_terms)
        self._plain += astuple(fields)[: len(PLAIN)]
        self._events += 1

    def _add_group(self, name: str, group: Any) -> None:
        if group != NOTHING.get(name):
            events, values = self._groups[name]
            events.append(self._events)
            values += astuple(group)

    def _add_lists(self, fields: EventFields) -> None:
        given = {name: pages for name in _LISTS if (pages := getattr(fields, name)) is not None}
        for name, pages in given.items():
            _require_bounded(fields.seq, name, pages)
        for name, pages in given.items():
            if pages or name in PAGE_LISTS_OR_NULL:
                starts, counts = _runs_of(pages)
                lists = self.lists[name]
                lists.rows.append(self._events)
                lists.lengths.append(len(counts))
                lists.starts += starts
                lists.counts += counts
                self._runs += len(counts)

    def of_all(self, name: str) -> list[Any]:
        """What each event has in one of the PLAIN fields."""
        return self._plain[PLAIN.index(name) :: len(PLAIN)]

    def names(self, column: str) -> list[str]:
        """The names in one of NAMES, in order of appearance."""
        return [text for text in dict.fromkeys(self.of_all(column)) if text is not None]

    @property
    def actions(self) -> list[int]:
        """Indices into ACTIONS."""
        return [_CODES[action] for action in self.of_all("action")]

    def cells(self) -> Iterator[tuple[str, list[int], Any]]:
        """Of each field of COLUMNS_OF that some events have: its name, these events as numbers here, and an array of int64 with
        a row for each of them and its columns, ABSENT where one is; a name as its place in `names`."""
        import numpy as np

        for name, columns in COLUMNS_OF.items():
            if name in GROUPS:
                events, values = self._groups[name]
            else:
                of_all = self.of_all(name)
                events = [event for event, value in enumerate(of_all) if value is not None]
                known = [of_all[event] for event in events]
                if name in NAMES:
                    number_of = {text: number for number, text in enumerate(self.names(name))}
                    known = [number_of[text] for text in known]
                values = known
            if events:
                packed = struct.pack(f"{len(values)}q", *values)  # takes half of what numpy.array takes for a list
                yield name, events, np.frombuffer(packed, np.int64).reshape(-1, len(columns))

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
            "seq": pa.array(self.of_all("seq"), pa.int64()),
            "action": pa.DictionaryArray.from_arrays(pa.array(self.actions, pa.int8()), list(ACTIONS)),
        }
        for name, events, values in self.cells():
            for column, of_column in zip(COLUMNS_OF[name], values.T, strict=True):
                there = of_column != ABSENT if name in GROUPS else np.ones(len(events), np.bool_)
                if there.any():
                    array = self._spread(np.array(events)[there], of_column[there], _KINDS[column])
                    if column in NAMES:
                        array = pa.DictionaryArray.from_arrays(array, pa.array(self.names(column), pa.utf8()))
                    arrays[column] = array
        for column in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
            if column in self.lists or column in PAGE_LISTS:
                arrays[column] = self._list_array(column)
        if self.verbatim:
            arrays["verbatim"] = pa.array([self.verbatim.get(i) for i in range(len(self))], pa.utf8())
        stored = schema_of(frozenset(arrays))
        return pa.record_batch([arrays[name] for name in stored.names], schema=stored)

    def _clear(self) -> None:
        self._events = 0
        self._plain: list[Any] = []
        """The PLAIN fields of each event, one event after the other."""
        self._groups: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in GROUPS}
        """Of each group of fields: the events that have it, and its values, one event after the other."""
        self.lists: dict[str, PageLists] = defaultdict(PageLists)
        self.verbatim: dict[int, str] = {}
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


def _require_bounded(seq: int, name: str, pages: Sequence[int]) -> None:
    if len(pages) > MOST_PAGES:
        raise UserError(f"event {seq}: {name} names {len(pages)} pages; a list has at most {MOST_PAGES}")


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
    for group, names in GROUPS.items():
        for name, column in zip(names, COLUMNS_OF[group], strict=True):
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
    """Starts and counts: ascending neighbours are one run; anything else begins a new one."""
    if not pages:
        return [], []
    first, last, length = pages[0], pages[-1], len(pages)
    if last - first == length - 1 and (length == 1 or pages == [*range(first, last + 1)]):
        return [first], [length]
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
