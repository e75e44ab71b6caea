"""A columnar file that is not as it was written is never taken for one that is, and never ends in a traceback."""

from __future__ import annotations

import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import DOCS
from run_traces import refused
from trace_events import HEADER

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces import columnar_blocks, columnar_check
from kvproof.conformance.traces.columnar import ColumnarReader, ColumnarWriter, stream_of_batch
from kvproof.conformance.traces.columnar_blocks import HEAD_SIZE, Kind, blocks, packed
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.columnar_schema import ACTIONS
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import line_of
from kvproof.spec.trace import End, Event, Terms

EVENTS: list[dict[str, Any]] = [
    {"action": "open", "session": "s"},
    {"action": "extend", "session": "s", "turn": "a", "alloc": (1, 2, 5), "params": {"seq_len": 9, "last": True}},
    {"action": "finish", "session": "s", "turn": "a", "free": (5,), "params": {"unheard_of": 1}},
    {"action": "check", "terms": dict.fromkeys(Terms.model_fields, 1)},
]


def in_blocks_of(events: int, path: Path, fields_of_events: list[dict[str, Any]]) -> Path:
    with ColumnarWriter(path, HEADER) as writer:
        for fields in fields_of_events:
            writer.event(**fields)
            if writer.events % events == 0:
                writer.flush()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Blocks: header, two events, two events, end."""
    return in_blocks_of(2, tmp_path / "t.kvtrace", EVENTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return in_blocks_of(30, tmp_path_factory.mktemp("whole") / "t.kvtrace", EVENTS * 20).read_bytes()


def error_of(path: Path) -> str:
    """The sentence with which a file is refused, whether its events are read or its batches."""
    message = refused(lambda: list(read_trace(path)))
    assert refused(lambda: list(ColumnarReader(path).batches())) == message
    return message


def offsets_of(path: Path) -> list[int]:
    with path.open("rb") as file:
        return [block.offset for block in blocks(file)]


def with_events(tmp_path: Path, stream: Any, events: int = 2) -> Path:
    """A file around one stream of events, with every length and checksum right."""
    path = tmp_path / "crafted.kvtrace"
    path.write_bytes(
        packed(0, Kind.HEADER, 0, 0, line_of(HEADER))
        + packed(1, Kind.EVENTS, 0, events, stream)
        + packed(2, Kind.END, events, 0, line_of(End(events=events)))
    )
    return path


def stream_of(batch: Any, **options: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def two_events(**fields: Any) -> Any:
    (batch,) = batches_of(Event(seq=i, action="evict", **fields) for i in range(2))
    return batch


# --- what a crash leaves behind -------------------------------------------------------------------------------------------


def test_a_torn_tail_is_named_and_what_is_before_it_is_usable(trace: Path) -> None:
    data, offsets = trace.read_bytes(), offsets_of(trace)
    trace.write_bytes(data[: offsets[2] + 50])
    reader = read_trace(trace)
    assert [record.seq for _, record in reader if isinstance(record, Event)] == [0, 1]
    assert reader.torn == f"block 2 at byte {offsets[2]}" and not reader.complete
    assert reader.broken_off is not None
    assert reader.broken_off.startswith(f"{trace}: block 2 at byte {offsets[2]}: the file ends after 6 of ")
    assert reader.truncated_at == 4


def test_every_truncation_is_incomplete_and_keeps_the_whole_blocks(trace: Path) -> None:
    data, offsets = trace.read_bytes(), offsets_of(trace)
    edges = {offset + step for offset in offsets[1:] for step in (-1, 0, 1, HEAD_SIZE - 1, HEAD_SIZE, HEAD_SIZE + 1)}
    for size in range(offsets[1], len(data)):
        if size not in edges and size % 97:
            continue
        trace.write_bytes(data[:size])
        reader = ColumnarReader(trace)
        kept = sum(2 for offset in (offsets[2], offsets[3]) if size >= offset)
        assert sum(map(len, reader.batches())) == kept
        assert not reader.complete and (reader.torn is None) == (size in offsets)


def test_a_file_that_breaks_off_inside_the_header_is_the_users_mistake(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:60])
    said = refused(read_trace, trace)
    assert "block 0 at byte 0: the file ends after 16 of" in said and "nothing can be checked" in said


# --- damage ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=400)
@given(data=st.data())
def test_flipped_and_missing_bytes_never_pass(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: Any
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    kept = damaged[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))]
    path = tmp_path_factory.mktemp("damaged") / "t.kvtrace"
    path.write_bytes(kept)
    if kept == whole:
        assert read(path) == "complete"
    elif len(kept) == len(whole):
        assert read(path) == "refused", "each byte is in a checksum"
    else:
        assert read(path) in ("refused", "incomplete")


def read(path: Path) -> str:
    try:
        reader = read_trace(path)
        list(reader)
    except UserError:
        return "refused"
    return "complete" if reader.complete else "incomplete"


@pytest.mark.parametrize(
    ("within", "said"), [(30, "wrong checksum of its head"), (HEAD_SIZE + 9, "wrong checksum of its payload")]
)
def test_damage_names_block_and_byte(trace: Path, within: int, said: str) -> None:
    data, offset = bytearray(trace.read_bytes()), offsets_of(trace)[2]
    data[offset + within] ^= 1
    trace.write_bytes(data)
    assert f"{trace}: block 2 at byte {offset}: {said}: the file is damaged" == error_of(trace)


def first_event(seq: int) -> Any:
    (batch,) = batches_of([Event(seq=seq, action="open")])
    return stream_of_batch(batch)


@pytest.mark.parametrize(
    ("arrange", "said"),
    [
        (lambda p: [p[0], p[2], p[1], p[3]], "block 1 at byte"),
        (lambda p: [p[0], p[2], p[3]], "numbered 2: blocks lost or reordered"),
        (lambda p: [*p, *p], "block 4 at byte"),
        (lambda p: [*p, *p], "were two traces joined?"),
        (lambda p: [*p, p[1]], "numbered 1: blocks lost"),
        (lambda p: [*p, packed(4, Kind.END, 4, 0, line_of(End(events=4)))], "a block after the end record"),
        (lambda p: [*p[:3], bytes(100)], "block 3 at byte"),
        (lambda p: [*p[:3], bytes(100)], "no block begins here"),
        (lambda p: [*p[:2], packed(2, Kind.EVENTS, 0, 1, first_event(0))], "event seq 0, expected 2"),
        (lambda p: [*p[:2], packed(2, Kind.EVENTS, 3, 1, first_event(3))], "event seq 3, expected 2"),
        (
            lambda p: [*p[:2], packed(2, Kind.END, 2, 0, line_of(End(events=3)))],
            "the end record counts 3 events, the file holds 2",
        ),
    ],
)
def test_whole_blocks_that_do_not_follow_one_another_are_refused(
    trace: Path, arrange: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    data, offsets = trace.read_bytes(), offsets_of(trace)
    blocks_of_trace = [data[a:b] for a, b in zip(offsets, [*offsets[1:], len(data)], strict=True)]
    trace.write_bytes(b"".join(arrange(blocks_of_trace)))
    assert said in error_of(trace)


def block(payload: bytes, **changes: int) -> bytes:
    """A block around a payload as it is stored; its head, whose checksum is right, claims what `changes` says."""
    fields = {
        "version": 1, "kind": Kind.HEADER, "number": 0, "first_seq": 0, "events": 0, "stored": len(payload),
        "unpacked": len(payload),
    }  # fmt: skip
    head = struct.pack("<8sHHIQIIII", b"\x89KVTRACE", *(fields | changes).values(), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "block version 2; this kvproof reads version 1"),
        ({"kind": 9}, "unknown kind 9"),
        ({"kind": 3}, "the header is missing"),
        ({"stored": 2**32 - 1}, "claims 4294967295 bytes"),
        ({"unpacked": 2**32 - 1}, "claims 4 bytes (4294967295 unpacked)"),
        ({"events": 2**21}, "and 2097152 events; a block has at most 268435456 bytes and 1048576 events"),
        ({}, "the header is missing: the first line"),
    ],
)
def test_a_head_that_claims_what_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    (path := tmp_path / "t.kvtrace").write_bytes(block(b"{}  ", **changes))
    assert said in refused(read_trace, path)


# --- payloads that were made to deceive -----------------------------------------------------------------------------------


def replaced(batch: Any, column: str, array: Any) -> Any:
    return batch.set_column(batch.schema.get_field_index(column), column, array)


def run_lists(*lists: list[tuple[int, int]] | None) -> Any:
    batch = two_events()
    return pa.array(
        [None if x is None else [{"start": a, "count": b} for a, b in x] for x in lists], batch["alloc"].type
    )


def named(indices: list[int], names: list[str], kind: Any = None) -> Any:
    """A column of names: each is the index of one of `names`. `kind`: of the indices, int32 if not given."""
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind or pa.int32()), names, safe=False)


def no_text() -> Any:
    """A column of text that is not UTF-8."""
    return pa.array([b"\xff\xfe", None], pa.binary()).view(pa.utf8())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: stream_of(two_events(), compression="zstd"), "buffers are compressed a second time"),
        (lambda: stream_of(two_events(), compression="lz4"), "buffers are compressed a second time"),
        (lambda: stream_of(two_events().slice(1)), "1 events, 2 in its head"),
        (lambda: stream_of(two_events().rename_columns(["x", *two_events().schema.names[1:]])), "unknown column 'x'"),
        (lambda: stream_of(two_events().drop_columns(["alloc"])), "column 'alloc' is missing"),
        (
            lambda: stream_of(replaced(two_events(free=(1,)), "verbatim", pa.array(["{}", None]))),
            "a verbatim event has 'free' too",
        ),
        (lambda: pa.py_buffer(b"no stream"), "its payload is no block of events"),
        (lambda: pa.py_buffer(b""), "its payload is no block of events"),
    ],
)
def test_a_payload_that_is_no_block_of_events_is_refused(tmp_path: Path, make: Callable[[], Any], said: str) -> None:
    assert_refused(with_events(tmp_path, make()), said)


OTHER_SEQ = line_of(Event(seq=7, action="evict")).decode()


@pytest.mark.parametrize(
    ("column", "make", "said"),
    [
        ("row", lambda: pa.array([1, 2], pa.int64()), "column 'row' is int64, expected int32"),
        ("seq", lambda: pa.array([0, 0]), "out of order"),
        ("seq", lambda: pa.array([5, 6]), "do not start at 0"),
        ("alloc", lambda: run_lists([(1, 0)], []), "a run of alloc is empty or leaves"),
        ("alloc", lambda: run_lists([(2**31 - 1, 2)], []), "leaves the range of page ids"),
        ("alloc", lambda: run_lists([(0, 2**30)], []), "names 1073741824 pages"),
        ("alloc", lambda: run_lists([(0, 2**24), (0, 1)], []), "names 16777217 pages"),
        ("alloc", lambda: run_lists(None, []), "column 'alloc' has a null"),
        ("terms_total", lambda: pa.array([1, None], pa.int32()), "some of terms are missing"),
        ("verbatim", lambda: pa.array(["{}", None]), "not an event"),
        ("verbatim", lambda: pa.array([OTHER_SEQ, None]), "event 0: its verbatim text is not the event of its other columns"),
        ("verbatim", no_text, "its payload is no block of events"),
        ("action", lambda: named([0, 0], ["evict"], pa.int8()), "the dictionary of its actions is another one"),
        ("action", lambda: named([0, 0], ["open"], pa.int8()), "the dictionary of its actions is another one"),
        ("action", lambda: named([0, 0], [*ACTIONS, "more"], pa.int8()), "the dictionary of its actions is another one"),
        ("session", lambda: named([0, 7], ["s"]), "its payload is no block of events"),
        ("turn", lambda: named([-1, 0], ["s"]), "its payload is no block of events"),
    ],
)  # fmt: skip
def test_a_column_that_breaks_a_rule_is_refused(
    tmp_path: Path, column: str, make: Callable[[], Any], said: str
) -> None:
    assert_refused(with_events(tmp_path, stream_of(replaced(two_events(), column, make()))), said)


def test_a_file_from_before_the_last_action_is_read(tmp_path: Path) -> None:
    evict = ACTIONS.index("evict")
    older = replaced(two_events(), "action", named([evict, evict], list(ACTIONS[:-1]), pa.int8()))
    assert ACTIONS[-1] == "ask_abort"
    assert [
        event.action for _, event in read_trace(with_events(tmp_path, stream_of(older))) if isinstance(event, Event)
    ] == ["evict"] * 2


def assert_refused(path: Path, said: str) -> None:
    message = refused(lambda: list(read_trace(path)))
    assert message.startswith(f"{path}: block 1 at byte ") and said in message


@pytest.mark.parametrize(
    ("stored", "unpacked"),
    [
        (lambda: pa.Codec("zstd").compress(bytes(2**27), asbytes=True), 1000),
        (lambda: pa.Codec("zstd").compress(bytes(999), asbytes=True)[:-7], 999),
    ],
    ids=["more than it says: a bomb", "a truncated frame"],
)
def test_a_payload_that_unpacks_to_something_else_than_it_says_is_refused(
    tmp_path: Path, stored: Callable[[], bytes], unpacked: int
) -> None:
    """All checksums are right: whoever wrote it wrote it so."""
    path = tmp_path / "t.kvtrace"
    events = block(stored(), kind=Kind.EVENTS, number=1, events=1, unpacked=unpacked)
    path.write_bytes(packed(0, Kind.HEADER, 0, 0, line_of(HEADER)) + events)
    assert_refused(path, f"its payload does not unpack to {unpacked} bytes")
    assert error_of(path)


@settings(max_examples=300)
@given(data=st.data())
def test_crafted_payloads_with_right_checksums_end_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    """Byte flips inside the Arrow stream, sealed again: whatever comes of it, no traceback and no huge allocation."""
    (batch,) = batches_of(Event(seq=i, **fields) for i, fields in enumerate(EVENTS))
    stream = bytearray(stream_of_batch(batch).to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    path = with_events(tmp_path_factory.mktemp("crafted"), pa.py_buffer(bytes(stream)), events=len(EVENTS))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(path) in ("refused", "complete")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


# --- the command line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cut", "code"), [(0, 1), (1, 3)])
def test_a_torn_trace_is_inconclusive_for_replay_unless_it_violates(trace: Path, cut: int, code: int) -> None:
    """The first event of the trace is right, the second (an extend without its match) is not."""
    data, offsets = trace.read_bytes(), offsets_of(trace)
    trace.write_bytes(data[: offsets[1] + 60] if cut else data[: offsets[2] + 60])
    result = run("replay", trace)
    assert result.exit_code == code, result.output
    assert ("the file ends after" in result.output) == bool(cut)


def test_a_damaged_trace_could_not_be_run(trace: Path) -> None:
    data = bytearray(trace.read_bytes())
    data[offsets_of(trace)[1] + HEAD_SIZE] ^= 1
    trace.write_bytes(data)
    for command in ("replay", "info"):
        result = run(command, trace)
        assert result.exit_code == 2 and "Traceback" not in result.output
        assert "wrong checksum of its payload" in result.stderr


def test_info_names_the_torn_block(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-20])
    result = run("info", "-q", trace)
    assert result.exit_code == 3 and "block 3 at byte" in result.stdout


def test_the_limits_are_those_of_the_page() -> None:
    page = " ".join((DOCS / "columnar.md").read_text().split())
    assert columnar_blocks.LARGEST_PAYLOAD == 2**28 and "at most 256 MiB" in page
    assert columnar_blocks.MOST_EVENTS == 2**20 and "at most 2^20 events" in page
    assert columnar_check.MOST_PAGES == 2**24 and "at most 2^24 pages" in page
