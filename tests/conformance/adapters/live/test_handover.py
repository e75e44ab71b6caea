"""From the scheduler's thread to the disk: nothing waits, what is lost is counted, and the file is whole lines at any moment."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from live_traces import CHECK, OPEN, a_decode, a_result, handover_to, wait_until_written
from trace_events import HEADER, written
from waiting import wait_until

from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.adapters.live.handover import RECORDS_OF_A_BATCH, Handover, TraceLost, frame
from kvproof.conformance.adapters.live.lines import Lines
from kvproof.conformance.adapters.live.lines_file import header_line
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.live.writer import frames, write_trace
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event


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
    terms = dict.fromkeys(("available", "evictable", "protected", "session_held", "uncached", "total"), 0)
    records: list[Any] = [
        OPEN,
        {
            "action": "extend",
            "turn": "ü",
            "row": 0,
            "alloc": [1],
            "shared": [],
            "params": {"seq_len": 3, "last": False},
        },
        {**CHECK, "terms": terms, "free_list": []},
        {"action": "close", "session": "s", "row": None, "free": [], "after": {}},
        a_decode(3),
        a_result(3),
    ]
    assembly = Assembly(4)
    trace = written(tmp_path / "t.jsonl", [event for record in records for event in assembly.events(record)])
    first, *lines, _ = trace.read_bytes().splitlines(keepends=True)
    assert (header_line(HEADER), Lines(4).of(records)) == (first, lines)


def test_a_batch_becomes_one_event_for_each_request_and_its_session_is_remembered() -> None:
    assembly = Assembly(4)
    first, second = assembly.events(a_decode(3))
    assert first["session"] == "s" and first["after"]["inflight"] is True
    assert first["alloc"] == [7] and "alloc" not in second  # only the first one's token is the first of its page
    assert "session" not in second
    first, second = assembly.events((*a_decode(4)[:6], None, *a_decode(4)[7:]))  # nothing touched the sessions
    assert first["session"] == "s" and "inflight" not in first["after"]
    assert "session" not in second
    [result] = assembly.events(a_result(4))
    assert (result["turn"], result["session"], result["params"]) == (
        "a",
        "s",
        {"tokens": 1},
    )  # the other gained nothing
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
    wait_until(lambda: path.read_bytes().count(b"\n") == lines, f"{lines} lines in {path}")


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
@pytest.mark.parametrize("idle", [True, False])
def test_a_server_that_vanishes(tmp_path: Path, name: str, idle: bool) -> None:
    """Its pipe closes silently: while idle the trace is whole, at work it is incomplete, and never torn."""
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
    values: list[Any] = []
    with os.fdopen(os.dup(pipe[0]), "rb") as reader:
        thread = threading.Thread(target=lambda: values.extend(frames(reader)))
        thread.start()
        handover.end("finished")
        thread.join(10)
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


def test_a_batch_waits_for_its_page_ids_and_keeps_its_order(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive when the test says so, as those of a GPU do."""
    are_there: list[bool] = []
    event = SimpleNamespace(query=lambda: bool(are_there), synchronize=lambda: None)
    copies = SimpleNamespace(begin=lambda indices: indices.clone(), events=lambda: [event])
    monkeypatch.setattr("kvproof.conformance.adapters.live.page_ids.DeviceCopies", lambda: copies)
    handover = handover_to(pipe[1])
    handover.page_ids = page_ids = PageIds(4, device_is_host=False)
    handover.is_idle = False
    os.set_blocking(pipe[0], False)
    free = page_ids.read(torch.tensor([8, 9, 10, 11, 4]), once=True)
    handover.put({"action": "evict", "free": free})
    handover.flush()
    handover.put(OPEN)  # needs no ids, but comes later
    handover.flush()
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1 << 16)
    are_there.append(True)
    handover.flush()
    sent = list(frames(io.BytesIO(os.read(pipe[0], 1 << 16))))
    assert sent == [[{"action": "evict", "free": [2, 1]}], [OPEN]]
