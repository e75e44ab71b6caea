"""What the loop gets of an event is what stands in the event, whichever part of a record batch it comes from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from trace_events import EVENTS

from kvproof.conformance.compiled import columns, filler
from kvproof.conformance.compiled.columns import EventBatch, Names, arrays_of
from kvproof.conformance.compiled.layout import ACTION, COLUMNS, LISTS, ODD
from kvproof.conformance.traces.columnar_events import EventColumns, batches_of
from kvproof.conformance.traces.columnar_schema import ABSENT, ACTIONS, FLAGS, NAMES, NUMBERS, PAGE_LISTS_OR_NULL
from kvproof.spec.trace import Event

GROUPS = {"window_terms": "window_terms", "terms": "terms", "param": "params", "after": "after"}


def value_of(event: Event, column: str) -> Any:
    """What stands in an event under the name of a column."""
    for prefix, group in GROUPS.items():
        if column.startswith(f"{prefix}_"):
            within, name = getattr(event, group), column.removeprefix(f"{prefix}_")
            return None if within is None else within.get(name) if group == "params" else getattr(within, name)
    return getattr(event, column)


def assert_told(events: list[Event], told: EventBatch, names: Names) -> None:
    table, turns = told.arrays.table, list(names.turns)
    assert len(told) == len(events)
    for n, event in enumerate(events):
        if table[ODD, n]:
            continue  # judged as an event
        wanted = {name: value_of(event, name) for name in (*FLAGS, *NUMBERS)}
        assert {name: table[COLUMNS[name], n] for name in wanted} == {
            name: ABSENT if value is None else int(value) for name, value in wanted.items()
        }
        for column, known in zip(NAMES, (names.keys, turns), strict=True):
            number, name = int(table[COLUMNS[column], n]), getattr(event, column)
            assert (number == -1) if name is None else known[number].endswith(name)
        for name, which in LISTS.items():
            begin, end = told.arrays.begins[which, n], told.arrays.ends[which, n]
            runs = told.arrays.runs[begin:end].tolist()
            assert [page for start, count in runs for page in range(start, start + count)] == list(
                getattr(event, name) or ()
            )
            assert told.longest_list >= len(getattr(event, name) or ())
        for name in PAGE_LISTS_OR_NULL:
            assert (table[COLUMNS[name], n] == ABSENT) == (getattr(event, name) is None)
        assert told.arrays.steps[n] == (ABSENT if event.step is None else event.step)
    assert table[ACTION, : len(events)].tolist() == [ACTIONS.index(event.action) for event in events]


def collected(events: list[Event]) -> EventColumns:
    columns = EventColumns()
    for event in events:
        columns.add(event)
    return columns


@settings(max_examples=100)
@given(events=st.lists(EVENTS, min_size=1, max_size=20), room=st.sampled_from([0, 2**20]), data=st.data())
def test_any_part_of_a_batch_is_told_as_it_stands(events: list[dict[str, Any]], room: int, data: st.DataObject) -> None:
    """Columns are bits and bytes that may begin anywhere in a buffer."""
    listed = [Event(seq=seq, **fields) for seq, fields in enumerate(events)]
    (batch,) = batches_of(listed)
    first = data.draw(st.integers(0, len(listed) - 1))
    last = data.draw(st.integers(first + 1, len(listed)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROOM_FOR_PAGES", room)
        parts = ((batch, listed), (batch.slice(first, last - first), listed[first:last]), (collected(listed), listed))
        for part, of_part in parts:
            names = Names()
            told = arrays_of(part, names)
            assert_told(of_part, told, names)
            assert list(told.events(0, len(of_part))) == of_part


def test_nothing_of_the_batch_before_is_left_in_the_arrays() -> None:
    """The arrays of a batch are those of the one before it, filled anew: a value that stays there would be judged."""
    rich = {
        "step": 3,
        "session": "s",
        "turn": "t",
        "row": 1,
        "params": {"last": True, "seq_len": 7},
        "after": {"inflight": True, "prefix_len": 5},
        "alloc": (1, 2, 9),
        "shared": (4,),
    }
    odd = {"params": {"unheard_of": 1}}
    kinds: list[list[dict[str, Any]]] = [[rich, rich, odd], [{}], [rich, {}], [odd, {}, {}], [{}, rich]]
    names = Names()
    for fields in [*kinds, *reversed(kinds)]:
        events = [Event(seq=seq, action="extend", **each) for seq, each in enumerate(fields)]
        (batch,) = batches_of(events)
        for told in (batch, collected(events), batch):
            assert_told(events, arrays_of(told, names), names)


def test_a_batch_without_events_fills_nothing() -> None:
    (batch,) = batches_of([Event(seq=0, action="extend", alloc=(1, 2))])
    names = Names()
    assert len(arrays_of(batch.slice(0, 0), names)) == 0
    assert_told([], arrays_of(batch.slice(1), names), names)


@settings(max_examples=30)
@given(events=st.lists(EVENTS, min_size=1, max_size=20), data=st.data())
def test_arrays_filled_by_python_are_the_same(events: list[dict[str, Any]], data: st.DataObject) -> None:
    """What is compiled is the text of `filler.py`; here it runs as it stands, and reads Arrow's memory by itself."""
    listed = [Event(seq=seq, **fields) for seq, fields in enumerate(events)]
    (batch,) = batches_of(listed)
    first = data.draw(st.integers(0, len(listed) - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "compiled_fill", lambda: filler.fill_columns)
        names = Names()
        assert_told(listed[first:], arrays_of(batch.slice(first), names), names)
