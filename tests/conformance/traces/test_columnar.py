"""Traces in columns: what is written is read, in either form, and nothing of it is lost."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from run_traces import refused
from trace_events import HEADER as PLAIN_HEADER
from trace_events import NAMES, all_in, copied, events_of
from trace_events import written as written_under

from kvproof.conformance.traces import columnar_events
from kvproof.conformance.traces.columnar import ColumnarReader, ColumnarWriter
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAG_PARAMS,
    FLAGS_AFTER,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    numbers,
    runs,
    schema,
)
from kvproof.conformance.traces.json_lines import TraceReader, TraceWriter
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.spec.trace import End, Event, EventName, Observed, Terms

HEADER = PLAIN_HEADER.model_copy(update={"extra": {"nested": {"é": [1, 2.5, None, "x"]}}})

SMALL = st.integers(0, 300)
# The edges of 32 and 64 bits and what is beyond: a column cannot hold all of them, a trace must.
ANY_NUMBER = SMALL | st.sampled_from([-1, 2**31 - 1, 2**31, -(2**31), 1 - 2**31, 2**63 - 1, 2**63, 10**30, -(10**30)])
RUN = st.builds(lambda start, count: list(range(start, start + count)), st.integers(0, 90), st.integers(0, 80))
PAGES = st.lists(RUN | st.lists(ANY_NUMBER, max_size=3), max_size=3).map(lambda parts: tuple(itertools.chain(*parts)))
FITTING_PARAMS = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(FLAG_PARAMS, st.booleans()), **dict.fromkeys(NUMBER_PARAMS, SMALL)}
)
PARAMS = FITTING_PARAMS | st.dictionaries(
    st.sampled_from([*FLAG_PARAMS, *NUMBER_PARAMS]) | NAMES, st.none() | st.booleans() | ANY_NUMBER
)
AFTER = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FLAGS_AFTER, st.none() | st.booleans()),
        **dict.fromkeys(NUMBERS_AFTER, st.none() | ANY_NUMBER),
    },
).map(lambda fields: Observed(**fields))
TERMS = st.builds(Terms, **dict.fromkeys(Terms.model_fields, ANY_NUMBER))
EVENTS = st.fixed_dictionaries(
    {"action": st.sampled_from(get_args(EventName))},
    optional={
        **dict.fromkeys(("cause", "step", "row"), st.none() | ANY_NUMBER),
        **dict.fromkeys(("session", "turn"), st.none() | NAMES),
        **dict.fromkeys(PAGE_LISTS, PAGES),
        **dict.fromkeys(PAGE_LISTS_OR_NULL, st.none() | PAGES),
        **dict.fromkeys(("terms", "window_terms"), st.none() | TERMS),
        "params": PARAMS,
        "after": AFTER,
    },
)
TRACES = st.lists(EVENTS, max_size=8)
LOOK_ALIKE: list[dict[str, Any]] = [{"last": None}, {"last": False}, {}, {"seq_len": True, "last": 1}]
"""Absent, null and false are three things, and a flag where a number belongs stays a flag."""


written = partial(written_under, header=HEADER)


def batch_of(*events: dict[str, Any]) -> Any:
    (batch,) = batches_of(Event(seq=i, **fields) for i, fields in enumerate(events))
    return batch


# --- nothing is lost ------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(events=TRACES, block=st.integers(1, 9))
@example(events=[{"action": "extend", "params": params} for params in LOOK_ALIKE], block=3)
def test_lines_to_columns_and_back_are_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    lines = written(folder / "t.jsonl", events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_events, "EVENTS_OF_A_BLOCK", block)
        columns = copied(lines, folder / "t.kvtrace")
    assert copied(columns, folder / "back.jsonl").read_bytes() == lines.read_bytes()
    assert all_in(columns) == all_in(lines)


@settings(max_examples=25)
@given(events=TRACES)
def test_a_recorder_may_write_columns_at_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    at_once = written(folder / "t.kvtrace", events)
    assert at_once.read_bytes() == copied(written(folder / "t.jsonl", events), folder / "u.kvtrace").read_bytes()
    assert all_in(at_once)[-1] == (len(events) + 2, End(events=len(events)))


def test_lines_that_another_writer_wrote_give_the_same_events(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [])
    header = path.read_text().splitlines()[0]
    event = '{"seq": 0, "after": {"lent": null}, "record": "event", "row": null, "action": "open", "alloc": [], "shared": []}'
    path.write_text("\n".join([header, event, '{"record": "end", "events": 1}']) + "\n")
    assert all_in(copied(path, tmp_path / "t.kvtrace")) == all_in(path)


# --- columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ((5, 6, 7, 7, 9), [(5, 3), (7, 1), (9, 1)]),
        ((3, 2, 1), [(3, 1), (2, 1), (1, 1)]),
        (tuple(range(100)), [(0, 100)]),
        ((*range(70), *range(70)), [(0, 70), (0, 70)]),
        ((*range(70), *range(80, 90)), [(0, 70), (80, 10)]),
        ((*range(70), 69), [(0, 70), (69, 1)]),
        ((), []),
    ],
)
def test_a_page_list_is_its_runs_in_order(pages: tuple[int, ...], expected: list[tuple[int, int]]) -> None:
    offsets, starts, counts = runs(batch_of({"action": "open"}, {"action": "extend", "alloc": pages}), "alloc")
    assert offsets.tolist() == [0, 0, len(expected)]
    assert list(zip(starts.tolist(), counts.tolist(), strict=True)) == expected


def test_an_empty_list_is_an_observation_only_where_it_may_be_absent() -> None:
    batch = batch_of({"action": "insert", "shared": ()}, {"action": "insert"})
    assert batch["shared"].to_pylist() == [[], None] and batch["alloc"].to_pylist() == [[], []]


def test_numbers_and_flags_as_plain_arrays() -> None:
    batch = batch_of({"action": "extend", "step": 2**40, "params": {"last": True, "seq_len": 7}}, {"action": "open"})
    assert numbers(batch, "param_seq_len").tolist() == [7, ABSENT]
    assert numbers(batch, "param_last").tolist() == [1, ABSENT]
    assert numbers(batch, "step").tolist() == [2**40, ABSENT]


def test_the_index_of_an_action_is_the_same_in_every_block() -> None:
    for action in ACTIONS:
        batch = batch_of({"action": action})
        assert batch["action"].indices.to_pylist() == [ACTIONS.index(action)]


@pytest.mark.parametrize(
    "odd",
    [
        {"params": {"unheard_of": 1}},
        {"params": {"seq_len": None}},
        {"row": 2**31},
        {"step": 2**63},
        {"alloc": (2**31,)},
        {"after": {"kv_committed_len": ABSENT}},
    ],
)
def test_an_event_that_fits_no_column_stands_verbatim_and_nowhere_else(odd: dict[str, Any]) -> None:
    batch = batch_of({"action": "extend", "session": "s", "shared": (), **odd})
    filled = [name for name in batch.schema.names if batch[name].null_count == 0 and batch[name].to_pylist() != [[]]]
    assert filled == ["seq", "action", "verbatim"]
    assert list(columnar_events.events_of(batch)) == [Event(seq=0, action="extend", session="s", shared=(), **odd)]


def test_every_field_of_an_event_has_columns() -> None:
    """A field that is added to the schema of traces must be given a place here."""
    columns = set(schema().names)
    grouped = {"params", "after", "terms", "window_terms"}
    assert {name for name in Event.model_fields if name not in columns} == grouped | {"record"}
    assert {f"after_{name}" for name in Observed.model_fields} <= columns
    assert {f"{group}_{name}" for name in Terms.model_fields for group in ("terms", "window_terms")} <= columns


def test_recorded_events_fit_the_columns(tmp_path: Path) -> None:
    """What the reference records goes through columns, not through the way out of them."""
    pytest.importorskip("torch")
    from kvproof.conformance.adapters.reference import record_scenario

    path = tmp_path / "t.jsonl"
    record_scenario("retract", path, page_size=4)
    batches = list(batches_of(events_of(path)))
    assert sum(map(len, batches)) > 50
    assert all(batch["verbatim"].null_count == len(batch) for batch in batches)


def test_long_lists_are_unpacked_one_event_at_a_time() -> None:
    """A free list may name every page of a large pool at every event: such a block must not be unpacked at once."""
    pages = tuple(range(100_000))
    (batch,) = batches_of(Event(seq=i, action="check", free_list=pages) for i in range(12))
    tracemalloc.start()
    assert all(event.free_list == pages for event in columnar_events.events_of(batch))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    bytes_per_page = 48  # an integer, its place in the list and in the tuple
    assert peak < 4 * bytes_per_page * len(pages)


# --- the file -------------------------------------------------------------------------------------------------------------


def test_what_a_file_holds_decides_and_not_its_name(tmp_path: Path) -> None:
    columns = written(tmp_path / "t.kvtrace", [{"action": "open"}]).rename(tmp_path / "columns.jsonl")
    lines = written(tmp_path / "t.jsonl", [{"action": "open"}]).rename(tmp_path / "lines.kvtrace")
    assert type(read_trace(columns)) is ColumnarReader and type(read_trace(lines)) is TraceReader
    assert all_in(columns) == all_in(lines)


def test_a_name_decides_how_a_trace_is_written(tmp_path: Path) -> None:
    for name, kind in {"t.kvtrace": ColumnarWriter, "t.jsonl": TraceWriter, "t.jsonl.gz": TraceWriter}.items():
        writer = write_trace(tmp_path / name, HEADER)
        assert type(writer) is kind
        writer.abandon()


def test_whole_blocks_are_seen_while_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.kvtrace"
    with write_trace(path, HEADER) as writer:
        assert isinstance(writer, ColumnarWriter)
        assert read_trace(path).header == HEADER
        writer.event(action="open", session="s")
        assert list(read_trace(path)) == []
        writer.flush()
        writer.event(action="close", session="s")
        reader = read_trace(path)
        assert [record.seq for _, record in reader if isinstance(record, Event)] == [0]
        assert not reader.complete and reader.torn is None
    assert len(list(read_trace(path))) == 3


@pytest.mark.parametrize("limit", ["EVENTS_OF_A_BLOCK", "RUNS_OF_A_BLOCK", "TEXT_OF_A_BLOCK"])
def test_a_block_ends_before_it_outgrows_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(columnar_events, limit, 4)
    path = written(tmp_path / "t.kvtrace", [{"action": "open", "session": f"s{i}", "alloc": (1, 3)} for i in range(9)])
    assert max(len(batch) for batch in ColumnarReader(path).batches()) <= 4
    assert len(list(read_trace(path))) == 10


def test_a_list_of_more_pages_than_any_device_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_events, "MOST_PAGES", 3)
    said = refused(written, tmp_path / "t.kvtrace", [{"action": "evict", "free": (1, 2, 3, 4)}])
    assert "event 0: free names 4 pages; a list has at most 3" in said
    assert list(read_trace(tmp_path / "t.kvtrace")) == []


def test_without_pyarrow_the_user_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, lines = (written(tmp_path / name, [{"action": "open"}]) for name in ("t.kvtrace", "t.jsonl"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(list(read_trace(lines))) == 2
    for said in (refused(read_trace, columns), refused(write_trace, tmp_path / "u.kvtrace", HEADER)):
        assert "need pyarrow, which is not installed: pip install 'kvproof[scale]'" in said
    assert not (tmp_path / "u.kvtrace").exists()
