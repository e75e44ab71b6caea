"""Lines that go into columns at once are the events that one reads one by one; what may differ is read one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from both_readings import read_by_records, read_in_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import EVENTS, HEADER

pytest.importorskip("pyarrow")

from kvproof.conformance.traces import columnar_events, json_lines
from kvproof.conformance.traces.columnar_events import EventColumns, events_of
from kvproof.conformance.traces.event_fields import fields_of_line
from kvproof.conformance.traces.records import line_of
from kvproof.spec.trace import Event

OPEN = '{"record":"event","seq":0,"action":"open","session":"s"}'
TERMS = '{"available":1,"evictable":1,"protected":1,"session_held":1,"uncached":1,"total":1}'


def open_with(fields: str) -> str:
    return OPEN.replace("}", f",{fields}}}")


PLAIN = [
    OPEN,
    OPEN + " \r",
    ' { "session" : "s", "action" : "open" , "seq":0, "record": "event" }',
    OPEN.replace('"s"', r'"\u0073\ud83d\ude00"'),
    OPEN.replace('"s"', '"ünï"'),
    OPEN.replace('"s"', "null"),
    open_with('"row":-1,"step":0,"cause":9223372036854775807,"alloc":[],"shared":[],"free":[3,4,5,5,2]'),
    open_with(f'"terms":{TERMS},"window_terms":null,"free_list":null'),
    open_with('"params":{"last":true,"seq_len":7},"after":{"inflight":false,"prefix_len":3}'),
    open_with('"params":{},"after":{}'),
]
ODD = [
    "",
    OPEN.replace('"s"', '"s","session":"t"'),
    open_with('"params":{"last":true,"last":false}'),
    open_with('"row":true'),
    open_with('"row":1.0'),
    open_with('"row":"1"'),
    open_with('"after":{"inflight":0}'),
    "\r",
    "[1]",
    OPEN + OPEN,
    '{"record":"end","events":0}',
    '{"record":"event","action":"open"}',
    '{"record":"event","seq":0}',
    '{"seq":0,"action":"open"}',
    OPEN.replace('"event"', '"evnt"'),
    OPEN.replace("open", "opened"),
    OPEN.replace('"open"', "[]"),
    OPEN.replace('"s"', "nul"),
    OPEN.replace('"s"', r'"\ud800"'),
    OPEN.replace('"s"', "1"),
    OPEN.replace('"s"', '"a\tb"'),
    OPEN.replace('"s"', '"s","pages":1'),
    OPEN.replace('"s"', '["s"]'),
    *(OPEN.replace("0", seq) for seq in ("null", "-1", "0.0", "00", "1e0", '"0"', "1", str(2**63), "NaN", "true")),
    open_with('"row":2147483648'),
    open_with('"row":true'),
    open_with('"row":1.5'),
    open_with('"row":[]'),
    open_with(f'"cause":{-(2**63)}'),
    open_with('"step":' + "9" * 40),
    *(open_with(f'"alloc":{pages}') for pages in ("[1,null]", "[1.0]", "[true]", "[2147483648]", "7", "null", '"1"', "{}")),
    open_with('"terms":{"available":1}'),
    open_with('"terms":{}'),
    open_with(f'"terms":{TERMS.replace("total", "sum")}'),
    open_with('"params":{"unheard_of":1}'),
    open_with('"params":{"last":1}'),
    open_with('"params":{"seq_len":true}'),
    open_with('"params":{"last": null}'),
    open_with('"params":null'),
    open_with('"after":{"prefix_len":3,"lent":null}'),
    open_with('"after":{"kv_comitted_len":1}'),
    open_with('"after":{"inflight":1}'),
    open_with('"after":[]'),
    '{"a":' * 3000 + "1" + "}" * 3000,
]  # fmt: skip


def test_every_plain_line_goes_into_columns_at_once() -> None:
    """Recorders write such lines; one by one they would be read ten times as slowly."""
    for line in PLAIN:
        assert fields_of_line(line.encode()) is not None, line


@settings(max_examples=200)
@given(events=st.lists(EVENTS, min_size=1, max_size=4))
def test_what_goes_into_columns_comes_back_as_the_event(events: list[dict[str, Any]]) -> None:
    for seq, fields in enumerate(events):
        event, columns = Event(seq=seq, **fields), EventColumns()
        if (fitting := fields_of_line(line_of(event))) is not None:
            columns.add_fields(fitting)
            assert list(events_of(columns.take())) == [event]


# --- a whole trace --------------------------------------------------------------------------------------------------------


def assert_the_same(path: Path, data: bytes) -> None:
    """The same events, the same error or end after them, the same place to go on from."""
    with json_lines._open_for_writing(path) as file:
        file.write(line_of(HEADER) + b"\n" + data)
    assert read_in_batches(path) == read_by_records(path)


@pytest.mark.parametrize("line", [*PLAIN, *ODD])
def test_any_line_is_read_in_batches_as_by_itself(tmp_path: Path, line: str) -> None:
    first, line = OPEN.encode() + b"\n", line.replace('"seq":0', '"seq":1')
    for data in (line.encode() + b"\n", line.encode(), line.encode() + b"\n" + OPEN.replace("0", "2").encode() + b"\n"):
        assert_the_same(tmp_path / "t.jsonl", first + data)


@pytest.mark.parametrize("name", [b"\xff", b"a\x00b", b"\xed\xa0\x80", b"\xc3"])
def test_text_that_is_no_json_string_is_refused(tmp_path: Path, name: bytes) -> None:
    line = OPEN.encode().replace(b'"s"', b'"' + name + b'"') + b"\n"
    assert fields_of_line(line) is None
    assert_the_same(tmp_path / "t.jsonl", line)


@settings(max_examples=400)
@given(data=st.data())
def test_lines_with_any_byte_changed_are_read_in_batches_as_by_themselves(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = bytearray(data.draw(st.sampled_from(PLAIN)).encode() + b"\n" + OPEN.replace("0", "1").encode() + b"\n")
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(lines) - 1))
        new = data.draw(st.sampled_from(b'0123456789-+.eE"\\{}[],: \t\r\n\0truefalsn\x7f\xc3\xff'))
        if data.draw(st.booleans()):
            lines[at] = new
        else:
            lines.insert(at, new)
    assert_the_same(tmp_path_factory.mktemp("changed") / "t.jsonl", bytes(lines))


CHANGES = (
    lambda line: line.replace(b'"seq"', b'"params":{"last":null},"seq"'),
    lambda line: line.replace(b'"action"', b'"params":{"note":7},"action"'),
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


@settings(max_examples=200)
@given(
    count=st.integers(0, 40),
    odd=st.lists(st.tuples(st.integers(0, 39), st.sampled_from(CHANGES)), max_size=6),
    end=st.sampled_from([b"", b'{"record":"end","events":%d}\n', b'{"record":"end","events":%d}', b'{"record":"en']),
    suffix=st.sampled_from([".jsonl", ".jsonl.gz"]),
    block=st.sampled_from([1, 3, 16384]),
    cut=st.integers(0, 30),
)
def test_a_trace_in_batches_is_the_trace(
    tmp_path_factory: pytest.TempPathFactory, count: int, odd: Any, end: bytes, suffix: str, block: int, cut: int
) -> None:
    """Whatever it holds, packed or not, torn or not."""
    lines = [OPEN.replace("0", str(seq)).encode() + b"\n" for seq in range(count)]
    for at, change in odd:
        if at < count:
            lines[at] = change(lines[at])
    path = tmp_path_factory.mktemp("parts") / f"t{suffix}"
    with json_lines._open_for_writing(path) as file:
        file.write(line_of(HEADER) + b"\n" + b"".join(lines) + (end % count if b"%" in end else end))
    if suffix == ".jsonl.gz" and cut:
        path.write_bytes(path.read_bytes()[:-cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_events, "EVENTS_OF_A_BLOCK", block)
        assert read_in_batches(path) == read_by_records(path)


def test_a_line_that_is_too_long_is_refused_after_the_events_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_RECORD", 400)
    lines = OPEN + "\n" + OPEN.replace("0", "1").replace('"s"', '"' + "s" * 400 + '"') + "\n"
    assert_the_same(tmp_path / "t.jsonl", lines.encode())
    found, said = read_in_batches(tmp_path / "t.jsonl")
    assert len(found) == 1 and "the line is longer than 400 bytes" in said
