"""Lines that are scanned at once are the events that one reads one by one; what may differ is not taken."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from test_json_lines import EVENTS, HEADER

from kvproof.conformance.compiled import build, parts, scan_layout
from kvproof.conformance.compiled import lines as lines_module
from kvproof.conformance.compiled.columns import EventBatch, Names, arrays_of, batches, events_in
from kvproof.conformance.compiled.layout import COLUMNS, LISTS
from kvproof.conformance.compiled.lines import ScannedLines
from kvproof.conformance.errors import UserError
from kvproof.conformance.traces import json_lines
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.columnar_schema import FLAG_PARAMS, NUMBER_PARAMS
from kvproof.conformance.traces.json_lines import line_of, read_trace
from kvproof.spec.trace import RECORD, Event, EventName, Observed, Terms

OPEN = '{"record":"event","seq":0,"action":"open","session":"s"}'
TERMS = dict.fromkeys(Terms.model_fields, 1)
PLAIN_PARAMS = st.dictionaries(st.sampled_from(["last", "inserted"]), st.booleans()) | st.dictionaries(
    st.sampled_from(["seq_len", "tokens"]), st.integers(-5, 2**31 - 1)
)
PAGES = st.lists(st.integers(0, 12) | st.integers(0, 2**31 - 1), max_size=6).map(tuple)
PLAIN = st.fixed_dictionaries(
    {"action": st.sampled_from(["open", "extend", "check"])},
    optional={
        "session": st.sampled_from(["s", "nullable", "ünï"]),
        "turn": st.sampled_from(["a", "b"]),
        "cause": st.integers(-(10**18) + 1, 10**18 - 1),
        "step": st.integers(0, 2**40),
        "row": st.integers(-1, 9),
        "params": PLAIN_PARAMS,
        "alloc": PAGES,
        "free": PAGES,
        "window_free": PAGES,
        "shared": PAGES,
        "free_list": PAGES,
        "after": st.dictionaries(st.sampled_from(["kv_committed_len", "prefix_len"]), st.integers(-3, 2**31 - 1)),
        "terms": st.just(TERMS),
    },
)


def lines_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(line_of(Event(seq=seq, **fields)) + b"\n" for seq, fields in enumerate(events))


def one_by_one(lines: bytes) -> list[Event]:
    return [RECORD.validate_json(line) for line in lines.split(b"\n")[:-1]]


def told(events: EventBatch, names: Names) -> list[Any]:
    """What the loop is told of each event, with names in place of their numbers and lists in place of runs."""
    arrays, n = events.arrays, len(events)
    rows = [dict(zip(COLUMNS, column, strict=True)) for column in arrays.table[:, :n].T.tolist()]
    turns = list(names.turns)
    for row in rows:
        row["session"] = None if row["session"] < 0 else names.keys[row["session"]]
        row["turn"] = None if row["turn"] < 0 else turns[row["turn"]]

    def pages(which: int, event: int) -> list[int]:
        runs = arrays.runs[arrays.begins[which, event] : arrays.ends[which, event]].tolist()
        return [page for start, count in runs for page in range(start, start + count)]

    lists = [[pages(which, event) for which in LISTS.values()] for event in range(n)]
    assert max((len(list_) for of_one in lists for list_ in of_one), default=0) <= events.longest_list
    return list(zip(rows, arrays.steps[:n].tolist(), lists, strict=True))


def assert_same(lines: bytes, begin: int = 0, scan: Any = None) -> int:
    """What is taken of the lines is the same as one by one; how many those are."""
    scanned = ScannedLines.of(lines, begin, scan)
    taken = lines[begin : scanned.end]
    assert taken.count(b"\n") == len(scanned)
    if not len(scanned):
        return 0
    events = one_by_one(taken)
    assert [event.seq for event in events] == list(range(scanned.first_seq, scanned.first_seq + len(events)))
    assert list(scanned.events(0, len(scanned))) == events
    (batch,) = batches_of(events)
    ours, theirs = Names(), Names()
    assert told(arrays_of(scanned, ours), ours) == told(arrays_of(batch, theirs), theirs)
    assert told(arrays_of(scanned, ours), ours) == told(arrays_of(scanned, ours), ours), "once more the same"
    return len(scanned)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(PLAIN, min_size=1, max_size=12))
def test_plain_events_are_taken_at_once(events: list[dict[str, Any]]) -> None:
    assert assert_same(lines_of(events)) == len(events)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=4))
def test_any_events_are_the_same_or_not_taken(events: list[dict[str, Any]]) -> None:
    lines = lines_of(events)
    for begin in itertools.accumulate(map(len, lines.splitlines(keepends=True)), initial=0):
        assert_same(lines, begin)


@settings(max_examples=500, deadline=None)
@given(events=st.lists(PLAIN, min_size=1, max_size=3), data=st.data())
def test_lines_with_any_byte_changed_are_the_same_or_not_taken(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    lines = bytearray(lines_of(events))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(lines) - 1))
        new = data.draw(st.sampled_from(b'0123456789-+.eE"\\{}[],: \t\r\n\0truefalsn\x7f\xc3\xff'))
        if data.draw(st.booleans()):
            lines[at] = new
        else:
            lines.insert(at, new)
    assert_same(bytes(lines) + b"\n")


@settings(max_examples=100, deadline=None)
@given(events=st.lists(PLAIN, min_size=1, max_size=4))
def test_the_scanner_run_by_python_takes_the_same(events: list[dict[str, Any]]) -> None:
    plain = build.plain_scan()
    assert assert_same(lines_of(events), scan=plain) == len(events)


@pytest.mark.parametrize("name", sorted(Event.model_fields.keys() - {"record", "seq", "action"}))
def test_null_is_as_if_nothing_stood_there_where_others_read_it_so(name: str) -> None:
    line = OPEN.replace(',"session":"s"', f',"{name}":null').encode() + b"\n"
    try:
        RECORD.validate_json(line)
    except ValidationError:
        assert assert_same(line) == 0
    else:
        assert assert_same(line) == 1


def test_the_scanner_knows_every_field_of_an_event() -> None:
    known: dict[str, set[str]] = {group: set() for group in scan_layout.GROUPS}
    for group, name, *_ in scan_layout._keys():
        known[scan_layout.GROUPS[group]].add(name)
    assert known[""] == set(Event.model_fields)
    assert known["params"] == {*FLAG_PARAMS, *NUMBER_PARAMS}
    assert known["after"] == set(Observed.model_fields)
    assert known["terms"] == known["window_terms"] == set(Terms.model_fields)
    assert known["action"] == set(get_args(EventName))


@pytest.mark.parametrize(
    "lines",
    [
        OPEN,
        "\n",
        OPEN + OPEN + "\n",
        OPEN + OPEN + "\n" + OPEN + "\n\n",
        "[1]\n",
        '{"record":"end","events":0}\n',
        '{"record":"event","action":"open"}\n',
        '{"record":"event","seq":0}\n',
        '{"seq":0,"action":"open"}\n',
        OPEN.replace("open", "opened") + "\n",
        OPEN.replace('"s"', "nul") + "\n",
        OPEN.replace('"s"', "nulls") + "\n",
        OPEN.replace("0", "null") + "\n",
        OPEN.replace('"s"', r'"\u0073"') + "\n",
        OPEN.replace('"s"', r'"\ud800"') + "\n",
        OPEN.replace('"s"', "1") + "\n",
        OPEN.replace('"s"', '"s","session":"t"') + "\n",
        OPEN.replace('"s"', '"s","pages":1') + "\n",
        OPEN.replace("0", "-1") + "\n",
        OPEN.replace("0", "0.0") + "\n",
        OPEN.replace("0", "00") + "\n",
        OPEN.replace("0", "1e0") + "\n",
        OPEN.replace("0", '"0"') + "\n",
        OPEN.replace("0", str(2**63)) + "\n",
        OPEN.replace("0", "NaN") + "\n",
        OPEN.replace("}", ',"row":2147483648}') + "\n",
        OPEN.replace("}", ',"row":true}') + "\n",
        OPEN.replace("}", f',"cause":{-(2**63)}}}') + "\n",
        OPEN.replace("}", ',"alloc":[1,null]}') + "\n",
        OPEN.replace("}", f',"alloc":[{2**31}]}}') + "\n",
        OPEN.replace("}", ',"alloc":7}') + "\n",
        OPEN.replace("}", ',"terms":{"available":1}}') + "\n",
        OPEN.replace("}", ',"terms":{}}') + "\n",
        OPEN.replace("}", ',"params":{"unheard_of":1}}') + "\n",
        OPEN.replace("}", ',"params":{"last":1}}') + "\n",
        OPEN.replace("}", ',"params":{"seq_len":true}}') + "\n",
        OPEN.replace("}", ',"params":{"last": null}}') + "\n",
    ],
)
def test_what_others_read_in_another_way_is_not_taken(lines: str) -> None:
    assert len(ScannedLines.of(lines.encode())) == 0
    first = (OPEN + "\n").encode()
    assert ScannedLines.of(first + lines.encode()).end == len(first)


@pytest.mark.parametrize("name", [b"\xff", b"a\tb", b"a\x00b", b"\xed\xa0\x80"])
def test_text_that_is_no_json_string_is_not_taken(name: bytes) -> None:
    line = OPEN.encode().replace(b'"s"', b'"' + name + b'"') + b"\n"
    with pytest.raises(ValidationError):
        RECORD.validate_json(line)
    assert len(ScannedLines.of(line)) == 0
    before = OPEN.encode() + b"\n"
    assert len(ScannedLines.of(before + line)) == 1


def test_spaces_and_another_order_of_fields_are_the_same() -> None:
    fields = {**json.loads(OPEN), "after": {"inflight": True, "prefix_len": 3}, "alloc": [1, 2, 4], "terms": TERMS}
    assert assert_same(json.dumps(dict(reversed(fields.items()))).encode() + b" \r\n") == 1


def test_an_empty_line_ends_what_is_taken() -> None:
    assert assert_same(f"{OPEN}\n\n{OPEN.replace('0', '1')}\n".encode()) == 1


def test_no_event_is_shorter_than_the_room_that_is_made_for_it() -> None:
    shortest = b"".join(line_of(Event(seq=seq, action="open")) + b"\n" for seq in range(9))
    assert len(shortest) // 9 > lines_module.SHORTEST_LINE
    assert assert_same(shortest) == 9
    assert ScannedLines.of(shortest[:42] + b"\n" * 2**20).scanned.table.shape[1] < 2**20 // 30


def test_a_gap_between_seqs_ends_what_is_taken() -> None:
    lines = [OPEN.replace("0", str(seq)) + "\n" for seq in (5, 6, 8, 9)]
    assert assert_same("".join(lines).encode()) == 2


def test_a_line_that_is_too_long_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (OPEN + "\n" + OPEN.replace("0", "1").replace('"s"', '"' + "s" * 99 + '"') + "\n").encode()
    assert len(ScannedLines.of(lines)) == 2
    monkeypatch.setattr(json_lines, "LONGEST_RECORD", 100)
    assert len(ScannedLines.of(lines)) == 1


# --- a trace in parts -----------------------------------------------------------------------------------------------------

ODD_LINES = (
    lambda line: line.replace(b'"seq"', b'"params":{"last":null},"seq"'),
    lambda line: line.replace(b'"action"', b'"params":{"note":7},"action"'),
    lambda line: line.replace(b'"s"', b'"\\u0073"'),
    lambda line: line.replace(b'"seq":', b'"seq":1'),
    lambda line: line.replace(b"}", b""),
    lambda line: line + line,
    lambda line: b"",
    lambda line: line.replace(b"\n", b"\r\n"),
    lambda line: line[:-1] + b'{"record":"end","events":3}\n',
    lambda line: b'{"record":"end","events":3}\n',
    lambda line: line_of(HEADER) + b"\n",
    lambda line: b"\xff" + line,
)


def read_in_parts(path: Path) -> tuple[list[Event], Any]:
    reader = read_trace(path)
    return _with_its_end(reader, (event for batch in batches(reader) for event in events_in(batch)))


def read_by_records(path: Path) -> tuple[list[Event], Any]:
    reader = read_trace(path)
    return _with_its_end(reader, (record for _, record in reader if isinstance(record, Event)))


def _with_its_end(reader: Any, events: Iterator[Event]) -> tuple[list[Event], Any]:
    found = []
    try:
        for event in events:
            found.append(event)
    except UserError as error:
        return found, error.message
    return found, (reader.end, reader.truncated_at, reader.broken_off, reader.place, reader.position)


@settings(max_examples=300, deadline=None)
@given(
    count=st.integers(0, 40),
    odd=st.lists(st.tuples(st.integers(0, 39), st.sampled_from(ODD_LINES)), max_size=6),
    end=st.sampled_from([b"", b'{"record":"end","events":%d}\n', b'{"record":"end","events":%d}', b'{"record":"en']),
    suffix=st.sampled_from([".jsonl", ".jsonl.gz"]),
    at_once=st.sampled_from([1, 100, 1000, 2**20]),
    cut=st.integers(0, 30),
)
def test_a_trace_in_parts_is_the_trace(
    tmp_path_factory: pytest.TempPathFactory, count: int, odd: Any, end: bytes, suffix: str, at_once: int, cut: int
) -> None:
    """Whatever stands in it: the same events, the same error or end behind them, the same place to go on from."""
    lines = [OPEN.replace("0", str(seq)).encode() + b"\n" for seq in range(count)]
    for at, change in odd:
        if at < count:
            lines[at] = change(lines[at])
    path = tmp_path_factory.mktemp("parts") / f"t{suffix}"
    data = line_of(HEADER) + b"\n" + b"".join(lines) + (end % count if b"%" in end else end)
    with json_lines._open_for_writing(path) as file:
        file.write(data)
    if suffix == ".jsonl.gz" and cut:
        path.write_bytes(path.read_bytes()[:-cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "AT_ONCE", at_once)
        try:
            expected: Any = read_by_records(path)
        except UserError as error:
            expected = error.message
        try:
            found: Any = read_in_parts(path)
        except UserError as error:
            found = error.message
    assert found == expected


def test_after_lines_that_are_not_plain_more_and_more_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    lines = [OPEN.replace("0", str(seq)).encode() + b"\n" for seq in range(2000)]
    for at in range(0, 1000, 2):
        lines[at] = ODD_LINES[0](lines[at])
    path.write_bytes(line_of(HEADER) + b"\n" + b"".join(lines))
    scans = []
    of = ScannedLines.of
    monkeypatch.setattr(ScannedLines, "of", lambda *arguments: (scans.append(1), of(*arguments))[1])
    kinds = [type(batch) for batch in batches(read_trace(path))]
    assert len(scans) < 15
    assert kinds[-1] is ScannedLines, "and then they are scanned again"
