"""From the scheduler's thread to the disk: nothing waits, what is lost is counted, and the file is whole lines at any moment."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import live_traces
import pytest
from live_traces import CHECK, OPEN, a_decode, a_result, handover_to, wait_until_written
from trace_events import HEADER
from waiting import wait_until

from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.adapters.live.handover import RECORDS_OF_A_BATCH, Handover, TraceLost, frame
from kvproof.conformance.adapters.live.lines_file import header_line
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.unfinished_trace import close_what_was_left
from kvproof.conformance.adapters.live.writer import frames, write_trace
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, replay
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import event_line
from kvproof.spec.trace import End, Event


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(end to read, end to write); the second is the handover's to close."""
    reading, writing = os.pipe()
    yield reading, writing
    with suppress(OSError):
        os.close(reading)


def to_a_writer(path: Path) -> Handover:
    """A handover to a real process that writes `path`, as a server has it."""
    named, file = live_trace.new_file(str(path), None)
    writing = live_trace.start_writer(file)
    os.close(file)
    os.write(writing, frame((file, named.suffix, 4, header_line(HEADER))))
    return handover_to(writing)


# -- lines --


def test_a_line_is_what_the_trace_writer_writes(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        OPEN,
        {"action": "evict", "free": [3, 1], "step": 0},
        {"action": "extend", "turn": "ü", "row": 0, "alloc": [1], "shared": [], "params": {"seq_len": 3, "last": False}},
        {"action": "check", "terms": dict.fromkeys(("available", "evictable", "protected"), 0)
         | {"session_held": 0, "uncached": 0, "total": 0}, "free_list": [], "params": {"busy": True}},
        {"action": "close", "session": "s", "row": None, "free": [], "after": {}},
    ]  # fmt: skip
    events += Assembly(4).events(a_decode(3))
    events += Assembly(4).events(a_result(3))
    with TraceWriter(tmp_path / "t.jsonl", HEADER) as writer:
        for event in events:
            writer.event(**event)
    lines = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    assert header_line(HEADER) == lines[0]
    assert [event_line(seq, event) + b"\n" for seq, event in enumerate(events)] == lines[1:-1]


def test_a_batch_becomes_one_event_for_each_request() -> None:
    first, second = Assembly(4).events(a_decode(3))
    assert first["session"] == "s" and first["after"]["inflight"] is True
    assert first["alloc"] == [7] and "alloc" not in second  # only the first one's token is the first of its page
    assert "session" not in second
    [result] = Assembly(4).events(a_result(3))
    assert (result["turn"], result["params"]) == ("a", {"tokens": 1})  # the other one gained nothing


def test_sessions_that_nothing_touched_are_remembered() -> None:
    assembly = Assembly(4)
    list(assembly.events(a_decode(3)))
    untouched = (*a_decode(4)[:6], None, *a_decode(4)[7:])
    first, second = assembly.events(untouched)
    assert first["session"] == "s" and "inflight" not in first["after"]
    assert "session" not in second
    list(assembly.events({"action": "finish", "session": "s", "turn": "a"}))
    [result] = assembly.events(a_result(4))
    assert "session" not in result


# -- the file --


def test_idle_completes_the_trace_and_the_next_event_takes_it_back(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    handover = to_a_writer(path)
    handover.put(OPEN)
    handover.idle()
    wait_for_lines(path, 3)
    assert replay(path).verdict == CONFORMS
    handover.put({"action": "close", "session": "s", "after": {"slot_held": False}})
    handover.put({**OPEN, "session": "t"})
    handover.flush()
    wait_for_lines(path, 4)
    assert [json.loads(line)["record"] for line in path.read_text().splitlines()] == ["header", *3 * ["event"]]
    assert replay(path).verdict == INCOMPLETE
    handover.end("finished")
    wait_until_written(path)
    assert replay(path).verdict == CONFORMS


def wait_for_lines(path: Path, lines: int) -> None:
    def is_so() -> bool:
        text = path.read_bytes()
        return text.count(b"\n") == lines and text.endswith(b"\n")

    wait_until(is_so, f"{lines} lines in {path}")


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
@pytest.mark.parametrize("idle", [True, False])
def test_a_server_that_vanishes(tmp_path: Path, name: str, idle: bool) -> None:
    """Its pipe closes without a word: while idle the trace is whole, at work it is incomplete, and never torn."""
    path = tmp_path / name
    handover = to_a_writer(path)
    for _ in range(3):
        handover.put(OPEN if not handover.is_idle else {**OPEN, "session": "t"})
    handover.flush()
    if idle:
        handover.idle()
    os.close(handover._pipe)
    wait_until_written(path)
    reader = read_trace(path)
    assert len([record for _, record in reader if isinstance(record, Event)]) == 3
    assert reader.complete is idle and reader.truncated_at is None


def test_packed_lines_are_the_plain_ones(tmp_path: Path) -> None:
    for name in ("plain.jsonl", "packed.jsonl.gz"):
        handover = to_a_writer(tmp_path / name)
        handover.put(OPEN)
        handover.idle()
        handover.put({"action": "close", "session": "s"})
        handover.end("finished")
        wait_until_written(tmp_path / name)
    packed = (tmp_path / "packed.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain.jsonl").read_bytes()


def test_a_full_disk_leaves_whole_lines_and_says_so(tmp_path: Path) -> None:
    script = f"""
import resource, os, sys
from kvproof.conformance.adapters.live.lines import Lines
from kvproof.conformance.adapters.live.lines_file import LinesFile, header_line
sys.path.insert(0, {str(Path(live_traces.__file__).parent)!r})
from live_traces import CHECK
from trace_events import HEADER
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = os.open({str(tmp_path / "t.jsonl")!r}, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
trace, lines = LinesFile(file, header_line(HEADER)), Lines(4)
try:
    for _ in range(100):
        trace.add(lines.of([CHECK] * 3))
except OSError as error:
    print(error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "File too large\n", done.stderr
    reader = read_trace(tmp_path / "t.jsonl")
    events = len([record for _, record in reader if isinstance(record, Event)])
    assert events % 3 == 0 and events > 0
    assert reader.truncated_at is None
    report = replay(tmp_path / "t.jsonl")
    assert report.verdict == INCOMPLETE
    assert reader.end is None or "could not be written on: File too large" in reader.end.reason


def test_a_batch_that_was_cut_in_the_pipe_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    whole = frame((file, ".jsonl", 4, header_line(HEADER))) + frame([OPEN])
    reading, writing = os.pipe()
    os.write(writing, whole + frame([{**OPEN, "session": "t"}])[:-3])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        write_trace(pipe)
    assert [json.loads(line)["record"] for line in path.read_text().splitlines()] == ["header", "event"]


def test_an_end_that_is_no_longer_true_is_revoked(tmp_path: Path) -> None:
    """The process that writes may die while the server is idle, and the server goes on."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, HEADER) as writer:
        writer.event(**CHECK)
    assert replay(path).verdict == CONFORMS
    close_what_was_left(path, "the process that writes the trace is gone", 2)
    assert replay(path).verdict == INCOMPLETE
    end = [record for _, record in read_trace(path)][-1]
    assert isinstance(end, End) and (end.events, end.dropped) == (1, 1)
    assert end.reason == "the process that writes the trace is gone"


# -- the buffer --


def test_putting_never_waits_for_a_writer_that_hangs(pipe: tuple[int, int]) -> None:
    handover = handover_to(pipe[1], buffer_bytes=1 << 16)
    began = time.monotonic()
    with pytest.raises(TraceLost, match=r"written too slowly: \d+ bytes wait"):
        for step in range(1_000_000):
            handover.put(a_decode(step))
    assert time.monotonic() - began < 10
    handover.end("written too slowly", patience=0)


def test_what_the_buffer_held_still_arrives(pipe: tuple[int, int]) -> None:
    handover = handover_to(pipe[1])
    for step in range(5000):
        handover.put(a_decode(step))
    got = bytearray()

    def drain() -> None:
        while data := os.read(pipe[0], 1 << 16):
            got.extend(data)

    thread = threading.Thread(target=drain)
    thread.start()
    handover.end("finished")
    thread.join(10)
    values = list(frames(io.BytesIO(got)))
    steps = [record[1] for value in values[:-1] for record in value]
    assert steps == [*range(5000)] and values[-1] == ("end", "finished", 0)


def test_a_writer_that_is_gone_is_an_error_not_a_signal(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    handover = handover_to(pipe[1])
    with pytest.raises(TraceLost, match="the process that writes the trace is gone"):
        handover.put(OPEN)
    handover.end("gone", patience=5)


def test_the_first_record_of_a_busy_period_goes_at_once(pipe: tuple[int, int]) -> None:
    handover = handover_to(pipe[1])
    os.set_blocking(pipe[0], False)
    handover.put(a_decode(0))
    assert os.read(pipe[0], 1 << 16)
    for step in range(RECORDS_OF_A_BATCH - 1):
        handover.put(a_decode(step))
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1 << 16)
    handover.put(a_decode(0))
    assert os.read(pipe[0], 1 << 16)


class LateCopy:
    """Page ids that arrive when the test says so, as those of a GPU do."""

    def __init__(self) -> None:
        self.is_there = False

    def query(self) -> bool:
        return self.is_there

    def synchronize(self) -> None:
        self.is_there = True


def test_a_batch_waits_for_its_page_ids_and_keeps_its_order(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[LateCopy] = []

    def begin(self: PageIds, indices: Any, into: list[int], once: bool, set_only: bool) -> None:
        from kvproof.conformance.adapters.live.page_ids import _Copy

        copies.append(LateCopy())
        self._copies.append(_Copy(indices, copies[-1], into, once, set_only))
        self.started += 1

    class Indices(list[int]):
        def tolist(self) -> list[int]:
            return list(self)

    monkeypatch.setattr(PageIds, "_begin", begin)
    page_ids = PageIds(4, device_is_host=False)
    handover = Handover(pipe[1])
    handover.page_ids = page_ids
    handover.is_idle = False
    os.set_blocking(pipe[0], False)
    free = page_ids.read(Indices([8, 9, 10, 11, 4]), once=True)
    handover.put({"action": "evict", "free": free})
    handover.flush()
    handover.put(OPEN)  # needs no ids, but comes later
    handover.flush()
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1 << 16)
    copies[0].is_there = True
    handover.flush()
    sent = list(frames(io.BytesIO(os.read(pipe[0], 1 << 16))))
    assert sent == [[{"action": "evict", "free": [2, 1]}], [OPEN]]


# -- names --


def test_two_servers_with_one_name_do_not_share_a_file(tmp_path: Path) -> None:
    wanted = str(tmp_path / "a" / "trace.jsonl.gz")
    first, file = live_trace.new_file(wanted, None)
    second, other = live_trace.new_file(wanted, None)
    assert first.name == "trace.jsonl.gz" and second.name == f"trace.{os.getpid()}.jsonl.gz"
    assert live_trace.is_being_written(first) and live_trace.is_being_written(second)
    os.close(file)
    assert not live_trace.is_being_written(first)
    os.close(other)


@pytest.mark.parametrize(
    ("wanted", "rank", "name"),
    [
        ("t.jsonl", None, "t.jsonl"),
        ("t.jsonl", "dp0-tp1", "t.dp0-tp1.jsonl"),
        ("t-{rank}.jsonl", "dp0-tp1", "t-dp0-tp1.jsonl"),
        ("t-{rank}-{pid}.jsonl", None, "t-0-{pid}.jsonl"),
    ],
)
def test_name_of_the_trace(tmp_path: Path, wanted: str, rank: str | None, name: str) -> None:
    path, file = live_trace.new_file(str(tmp_path / wanted), rank)
    os.close(file)
    assert path == tmp_path / name.format(pid=os.getpid())
