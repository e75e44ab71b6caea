"""A file that grows is read as far as it is whole: torn tails are waited for, ends may be taken back, damage is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from many_traces import HEADER
from run_traces import refused

pytest.importorskip("pyarrow")
pytest.importorskip("numba")
from trace_events import bare

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces import json_lines
from kvproof.conformance.traces.columnar import ColumnarWriter
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import line_of
from kvproof.conformance.watch import growing_trace as watch_source
from kvproof.conformance.watch.growing_trace import GrowingFile, source_of
from kvproof.spec.trace import End, Event

EVENTS = [Event(seq=n, action="open", session=f"s{n}", after={"slot_held": False}) for n in range(600)]
LINES = [line_of(event) + b"\n" for event in EVENTS]
HEAD = line_of(HEADER) + b"\n"


def end(events: int, **fields: Any) -> bytes:
    return line_of(End(events=events, **fields)) + b"\n"


class Growing:
    """A file that a test writes, and a source that follows it."""

    def __init__(self, path: Path, columns: bool) -> None:
        self.path, self.columns = path, columns
        self.source: Any = None
        """None: the file has no header yet."""
        self.file: Any = None

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def cut(self, size: int) -> None:
        os.truncate(self.path, size)

    def new(self) -> list[Any]:
        """Records that came, events as objects whatever they came as; at most a poll without news."""
        self.file = self.file or GrowingFile(self.path)
        self.source = self.source or source_of(self.file)
        found: list[Any] = []
        while self.source is not None and (parts := list(self.source.new(self.columns))):
            for part in parts:
                if isinstance(part, End):
                    return [*found, bare(part)]
                found += part.objects()
        return found


@pytest.fixture(params=[False, True], ids=["objects", "columns"])
def growing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Growing]:
    following = Growing(tmp_path / "t.jsonl", request.param)
    yield following
    if following.file is not None:
        following.file.close()


def test_lines_come_as_they_are_written_and_a_torn_one_is_waited_for(growing: Growing) -> None:
    growing.add(HEAD[:40])
    assert growing.new() == [] and growing.source is None
    growing.add(HEAD[40:] + LINES[0])
    assert growing.new() == EVENTS[:1]
    assert growing.source.header == HEADER
    growing.add(LINES[1] + LINES[2][:17])
    assert growing.new() == EVENTS[1:2]
    assert growing.source.held == 17 and growing.source.unread() == 0
    assert growing.source.broken_off == (f"{growing.path}:4: the line is cut off (17 bytes of it are there)")
    growing.add(LINES[2][17:] + b"".join(LINES[3:]) + end(600))
    assert growing.new() == [*EVENTS[2:], End(events=600)]
    assert growing.source.broken_off is None and growing.source.line == 603


def test_every_cut_of_a_trace_gives_all_of_it_in_two_parts(growing: Growing, tmp_path: Path) -> None:
    whole = HEAD + b"".join(LINES[:3]) + end(3)
    for size in range(len(HEAD), len(whole)):
        path = tmp_path / f"{size}.jsonl"
        path.write_bytes(whole[:size])
        following = Growing(path, growing.columns)
        first = following.new()
        following.add(whole[size:])
        assert [*first, *following.new()] == [*EVENTS[:3], End(events=3)], size


def test_an_end_that_is_taken_back_is_not_the_end(growing: Growing) -> None:
    """As the recorder of a server does: it ends the trace whenever the server is idle."""
    growing.add(HEAD + LINES[0] + end(1))
    assert growing.new() == [EVENTS[0], End(events=1)]
    assert growing.source.end == End(events=1)
    assert growing.new() == [] and growing.source.end is not None
    growing.cut(len(HEAD + LINES[0]))
    assert growing.new() == [] and growing.source.end is None
    growing.add(LINES[1] + end(2))
    assert growing.new() == [EVENTS[1], End(events=2)]
    growing.cut(len(HEAD + LINES[0] + LINES[1]))
    growing.add(LINES[2] + LINES[3] + end(4))  # before anyone looked
    assert growing.new() == [EVENTS[2], EVENTS[3], End(events=4)]
    assert growing.source.line == 7 and growing.source.ends_taken_back == 2


def test_an_end_that_gets_another_reason_is_told_anew(growing: Growing) -> None:
    growing.add(HEAD + LINES[0] + end(1))
    growing.new()
    growing.cut(len(HEAD + LINES[0]))
    growing.add(end(1, reason="the writing process is gone", dropped=3))
    assert growing.new() == [End(events=1, reason="the writing process is gone", dropped=3)]


def test_something_behind_the_end_is_damage(growing: Growing) -> None:
    growing.add(HEAD + LINES[0] + end(1) + LINES[1])
    assert growing.new() == [EVENTS[0], End(events=1)]
    assert "t.jsonl:4: a record after the end record" in refused(growing.new)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (b"{nonsense\n", "not JSON"),
        (HEAD, "a second header"),
        (LINES[7], "event seq 7, expected 2: lines lost or reordered"),
        (LINES[2] + LINES[1], "event seq 1, expected 3"),
        (end(9), "the end record counts 9 events, the file holds 2"),
        (b"\n", "not JSON"),
    ],
)
def test_damage_is_named_with_its_line_and_what_is_before_it_is_judged(
    growing: Growing, broken: bytes, said: str
) -> None:
    growing.add(HEAD + LINES[0] + LINES[1] + broken)
    growing.file, seen = GrowingFile(growing.path), 0
    with pytest.raises(UserError) as caught:
        for part in source_of(growing.file).new(growing.columns):
            seen += len(part)
    assert said in caught.value.message
    assert caught.value.message.startswith(f"{growing.path}:{seen + 2}: ") and seen >= 2


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (json_lines, watch_source):
        monkeypatch.setattr(module, "LONGEST_RECORD", 1000)
    growing.add(HEAD + LINES[0] + b"x" * 999)
    assert growing.new() == EVENTS[:1]
    growing.add(b"xx")
    assert f"{growing.path}:3: the line is longer than 1000 bytes" in refused(growing.new)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b'{"timestamp":0}\n', "t.jsonl:1: the header is missing"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "a packed trace cannot be followed"),
    ],
)
def test_a_file_that_cannot_become_a_trace_is_refused(growing: Growing, begin: bytes, said: str) -> None:
    growing.add(begin)
    assert said in refused(growing.new)


# --- columns --------------------------------------------------------------------------------------------------------------


def in_columns(path: Path, flush_every: int = 50) -> bytes:
    with ColumnarWriter(path, HEADER) as writer:
        for event in EVENTS:
            writer.write(event)
            if writer.events % flush_every == 0:
                writer.flush()
    return path.read_bytes()


@pytest.mark.parametrize("columns", [False, True])
def test_blocks_come_once_they_are_whole(tmp_path: Path, columns: bool) -> None:
    data = in_columns(tmp_path / "whole.kvtrace")
    for step in (1000, 333, 3001):
        following, seen = Growing(tmp_path / f"{step}.kvtrace", columns), []
        for at in range(0, len(data), step):
            following.add(data[at : at + step])
            seen += following.new()
            assert following.source is None or following.source.line == len(seen) + 2
        assert seen == [*EVENTS, End(events=600)]
        assert following.source.broken_off is None


def test_a_torn_block_is_named_and_not_counted_as_lag(tmp_path: Path) -> None:
    data = in_columns(tmp_path / "whole.kvtrace")
    following = Growing(tmp_path / "t.kvtrace", True)
    following.add(data[:-350])
    seen = following.new()
    assert "block 12 at byte" in following.source.broken_off
    assert seen == EVENTS[: len(seen)] and following.source.unread() == 0 and following.source.held > 0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "wrong checksum of its payload"),
        (lambda d: d + d, "block 14 at byte"),
        (lambda d: d + b"\0" * 100, "no block begins here"),
    ],
)
def test_a_damaged_block_is_named_as_the_reader_names_it(tmp_path: Path, damage: Any, said: str) -> None:
    following = Growing(tmp_path / "t.kvtrace", True)
    following.add(damage(in_columns(tmp_path / "whole.kvtrace")))
    message = refused(lambda: [following.new() for _ in range(3)])
    assert said in message and message == refused(lambda: list(read_trace(following.path)))


# --- another file in its place --------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_or_written_anew_is_noticed(growing: Growing) -> None:
    growing.add(HEAD + b"".join(LINES[:5]))
    growing.new()
    assert not growing.file.was_rewritten()
    growing.add(LINES[5][:9])
    growing.new()
    growing.cut(len(HEAD) + sum(map(len, LINES[:5])))  # only what was not whole yet
    assert not growing.file.was_rewritten()
    growing.cut(len(HEAD) + 10)
    assert growing.file.was_rewritten()


def test_a_file_that_was_written_anew_and_is_as_long_again_is_noticed(growing: Growing) -> None:
    growing.add(HEAD + b"".join(LINES[:5]))
    growing.new()
    other = HEAD.replace(b'"page_size":4', b'"page_size":8')
    with growing.path.open("r+b") as file:
        file.truncate(0)
        file.write(other + b"".join(LINES[:50]))
    assert growing.file.was_rewritten()
    assert not growing.file.is_elsewhere()


def test_a_file_that_was_replaced_or_removed_is_noticed(growing: Growing, tmp_path: Path) -> None:
    growing.add(HEAD + LINES[0])
    growing.new()
    assert not growing.file.is_elsewhere()
    with TraceWriter(tmp_path / "next.jsonl", HEADER):
        pass
    (tmp_path / "next.jsonl").replace(growing.path)
    assert growing.file.is_elsewhere() and not growing.file.was_rewritten()
    growing.path.unlink()
    assert growing.file.is_elsewhere()
