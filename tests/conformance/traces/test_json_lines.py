import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_traces import refused
from trace_events import EVENTS, HEADER, all_in, bare, written

from kvproof.conformance.traces.columnar import ColumnarWriter
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.spec.trace import End, Event


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def error_of(path: Path) -> str:
    return refused(lambda: list(read_trace(path)))


def with_second_line(tmp_path: Path, line: str) -> Path:
    path = written(tmp_path / "t.jsonl", [{"action": "open"}])
    path.write_text(lines_of(path)[0] + line + "\n")
    return path


# --- what is written is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@given(events=st.lists(EVENTS, max_size=5))
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, events: list[dict[str, Any]]
) -> None:
    path = written(tmp_path_factory.mktemp("trace") / f"t{suffix}", events)
    trace = read_trace(path)
    records = list(trace)
    assert list(trace) == records, "it can be read twice"
    assert trace.header == HEADER
    assert [record for _, record in records[:-1]] == [Event(seq=i, **fields) for i, fields in enumerate(events)]
    assert all_in(path)[-1] == (len(events) + 2, End(events=len(events)))
    assert trace.complete and trace.truncated_at is None


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_the_same_events_give_the_same_bytes_at_any_time(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = written(tmp_path / f"one{suffix}", [{"action": "open", "params": {"b": 1, "a": 2}}])
    monkeypatch.setattr("time.time", lambda: 1e9)
    two = written(tmp_path / f"two{suffix}", [{"action": "open", "params": {"a": 2, "b": 1}}])
    assert one.read_bytes() == two.read_bytes()


def test_a_line_holds_only_what_was_observed_and_an_empty_shared_list_is_an_observation(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [{"action": "open", "session": "s"}, {"action": "insert", "shared": ()}])
    assert lines_of(path)[1:3] == [
        '{"record":"event","seq":0,"action":"open","session":"s"}\n',
        '{"record":"event","seq":1,"action":"insert","shared":[]}\n',
    ]


def test_the_writer_numbers_the_events_and_makes_the_folder(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "new" / "t.jsonl", HEADER) as writer:
        assert [writer.event(action="open"), writer.event(action="result", cause=0)] == [0, 1]
        assert writer.events == 2


@pytest.mark.parametrize("writer", [TraceWriter, ColumnarWriter])
def test_a_path_that_cannot_be_written_is_the_users_mistake(writer: Any, tmp_path: Path) -> None:
    assert "cannot write the trace" in refused(writer, tmp_path, HEADER)


# --- incomplete traces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".kvtrace"])
def test_a_crash_while_recording_leaves_an_incomplete_trace_with_all_its_events(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    with pytest.raises(RuntimeError, match="crash"), write_trace(path, HEADER) as writer:
        writer.event(action="open")
        raise RuntimeError("crash")
    trace = read_trace(path)
    assert [record.record for _, record in trace] == ["event"]
    assert trace.end is None and trace.truncated_at is None


def test_a_recorder_that_closes_before_it_raises_leaves_a_complete_trace_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TraceWriter(tmp_path / "t.jsonl", HEADER) as writer:
        writer.event(action="open")
        writer.close("the pool ran dry", dropped=2)
        raise RuntimeError
    trace = read_trace(tmp_path / "t.jsonl")
    list(trace)
    assert bare(trace.end) == End(events=1, dropped=2, reason="the pool ran dry")


def test_every_cut_of_a_trace_is_incomplete_and_never_an_error(tmp_path: Path) -> None:
    whole = written(tmp_path / "t.jsonl", [{"action": "open"}, {"action": "evict", "free": (1,)}]).read_bytes()
    after_header, before_last_newline = whole.index(b"\n") + 1, len(whole) - 1
    for size in range(after_header, before_last_newline):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(whole[:size])
        trace = read_trace(path)
        list(trace)
        assert trace.end is None
        assert (trace.truncated_at is None) == _last_line_is_json(whole[:size])


def _last_line_is_json(data: bytes) -> bool:
    try:
        json.loads(data.splitlines()[-1])
    except ValueError:
        return False
    return True


def test_every_cut_of_a_packed_trace_is_incomplete_and_never_an_error(tmp_path: Path) -> None:
    whole = written(tmp_path / "t.jsonl.gz", [{"action": "open"}] * 50).read_bytes()
    path = tmp_path / "cut.jsonl.gz"
    for size in range(len(whole) // 2, len(whole) - 8):
        path.write_bytes(whole[:size])
        trace = read_trace(path)
        list(trace)
        assert trace.truncated_at is not None


# --- broken traces: path:line, what, what is valid ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{nonsense", "not JSON"),
        ("", "not JSON"),
        ("[1]", "not a record"),
        ('{"seq":0}', "not a record"),
        ('{"record":"evnt"}', "unknown record 'evnt'; did you mean event?; valid: header, event, end"),
        ('{"record":"event","seq":0}', "field 'action' is missing"),
        (
            '{"record":"event","seq":0,"action":"retrakt"}',
            "unknown action 'retrakt'; did you mean retract?; valid: open,",
        ),
        ('{"record":"event","seq":0,"action":"open","pages":1}', "unknown field of event 'pages'"),
        (
            '{"record":"event","seq":0,"action":"open","after":{"kv_comitted_len":1}}',
            "unknown field of event.after 'kv_comitted_len'; did you mean kv_committed_len",
        ),
        ('{"record":"event","seq":0,"action":"open","row":"x"}', "field 'row': "),
        ('{"record":"event","seq":3,"action":"open"}', "event seq 3, expected 0"),
        ('{"record":"end","events":9}', "the end record counts 9 events, the file holds 0"),
        ('{"record":"end","events":0}\n{"record":"end","events":0}', "a record after the end record"),
        (HEADER.model_dump_json(), "a second header"),
    ],
)
def test_a_broken_line_is_named_with_its_place(tmp_path: Path, line: str, expected: str) -> None:
    path = with_second_line(tmp_path, line)
    number = 2 + line.count("\n")
    message = error_of(path)
    assert message.startswith(f"{path}:{number}: ")
    assert expected in message
    if line and _last_line_is_json(line.encode()):  # without its newline it is no torn end either
        path.write_text(path.read_text().rstrip("\n"))
        assert error_of(path) == message


def test_a_broken_line_in_the_middle_is_no_torn_end(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [{"action": "open"}, {"action": "open"}])
    header, _, *rest = lines_of(path)
    path.write_text(header + '{"record":"ev\n' + "".join(rest))
    assert error_of(path).startswith(f"{path}:2: not JSON")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the file is empty"),
        ('{"record":"event","seq":0,"action":"open"}\n', ":1: the header is missing"),
        ('{"timestamp":0,"input_length":3}\n', ":1: the header is missing"),
        ("TIMESTAMP,ContextTokens\n", ":1: not JSON"),
        ('{"record":"header","format":1}\n', ":1: field 'spec' is missing"),
        (
            '{"record":"header","format":99,"a_field_of_the_future":1}\n',
            ":1: trace format 99; this kvproof reads format 1",
        ),
        (HEADER.model_dump_json().replace('"page_size":4', '"page_size":0') + "\n", ":1: field 'config.page_size'"),
    ],
)
def test_a_file_without_a_header_that_can_be_read_is_no_trace(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    assert expected in error_of(path)


def test_a_missing_file_and_a_misnamed_one_are_named(tmp_path: Path) -> None:
    assert "cannot read the trace: No such file" in error_of(tmp_path / "none.jsonl")
    (tmp_path / "plain.jsonl.gz").write_text("{}\n")
    assert "named .gz but not gzip" in error_of(tmp_path / "plain.jsonl.gz")
