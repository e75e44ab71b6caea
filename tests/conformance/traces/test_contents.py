"""The end record states how many events of each action there are, and the sha256 of all before it: a reader compares."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import command_line
import pytest
from run_traces import records_of, refused, trace_of_walk
from trace_events import HEADER, write_records

from kvproof.conformance.adapters.live.lines_file import header_line
from kvproof.conformance.adapters.live.writer import open_in_form
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, MAY_LACK_EVENTS, replay
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.conformance.traces.records import event_line
from kvproof.conformance.watch.growing_trace import GrowingFile, source_of
from kvproof.spec.trace import End, Event

FORMS = (".jsonl", ".jsonl.gz", ".kvtrace")
CHECKERS = ("interpreted", "compiled")
Change = Callable[[list[Event]], Iterable[Event]]


def in_form(path: Path, form: str) -> Path:
    """A trace that conforms, as its recorder left it."""
    lines = trace_of_walk(path.with_suffix(".jsonl"), 60, 5)
    out = path.with_suffix(form)
    if form != ".jsonl":
        assert command_line.run("convert", lines, out).exit_code == 0
    return out


def end_of(path: Path) -> End:
    reader = read_trace(path)
    for _ in reader:
        pass
    assert reader.end is not None
    return reader.end


def forged(path: Path, out: Path, change: Change, *, states_nothing: bool = False) -> Path:
    """Other events under the end record of a trace, which counts them rightly."""
    reader, end = read_trace(path), end_of(path)
    writer = write_trace(out, reader.header)
    for event in change([record for _, record in reader if isinstance(record, Event)]):
        writer.write(event)
    writer._put_rest()
    left_out = {"actions": None, "sha256": None} if states_nothing else {}
    writer._put_end(end.model_copy(update={"events": writer.events, **left_out}))
    writer._file.close()
    return out


def half(events: list[Event]) -> list[Event]:
    return events[: len(events) // 2]


def with_another_step(events: list[Event]) -> list[Event]:
    return [*events[:-1], events[-1].model_copy(update={"step": 10**6})]


@pytest.mark.parametrize("form", FORMS)
def test_a_recorder_states_what_its_trace_holds(form: str, tmp_path: Path) -> None:
    path = in_form(tmp_path / "t", form)
    events = [record for _, record in read_trace(path) if isinstance(record, Event)]
    assert end_of(path).actions == dict(sorted(Counter(event.action for event in events).items()))
    report = replay(path)
    assert report.verdict == CONFORMS and MAY_LACK_EVENTS not in report.gaps


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", [half, with_another_step])
def test_events_that_were_left_out_or_changed_are_noticed(
    change: Change, form: str, checker: str, tmp_path: Path
) -> None:
    """Under an end record that states nothing, as one of an older recorder, they conform; the report says what is not shown."""
    path = in_form(tmp_path / "t", form)
    bad = forged(path, tmp_path / f"bad{form}", change)
    assert "lines were left out or changed" in refused(replay, bad, checker=Chosen(checker))
    old = replay(forged(path, tmp_path / f"old{form}", change, states_nothing=True), checker=Chosen(checker))
    assert old.verdict == CONFORMS and MAY_LACK_EVENTS in old.gaps


def test_what_was_left_out_is_counted_by_action(tmp_path: Path) -> None:
    path = in_form(tmp_path / "t", ".jsonl")
    stated = end_of(path).actions
    assert stated is not None
    bad = forged(path, tmp_path / "bad.jsonl", lambda events: events[:1])
    assert f"{stated['create']} create (the file holds 0)" in refused(replay, bad)


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_header_is_noticed_too(form: str, tmp_path: Path) -> None:
    path = in_form(tmp_path / "t", form)
    reader, end = read_trace(path), end_of(path)
    writer = write_trace(tmp_path / f"bad{form}", reader.header.model_copy(update={"scenario": "another"}))
    for _, record in reader:
        if isinstance(record, Event):
            writer.write(record)
    writer._put_rest()
    writer._put_end(end)
    writer._file.close()
    assert "which states" in refused(replay, writer.path)


def test_a_conversion_states_what_it_holds_and_vouches_for_no_other_trace(tmp_path: Path) -> None:
    path = in_form(tmp_path / "t", ".jsonl")
    there, back = in_form(tmp_path / "t", ".kvtrace"), tmp_path / "back.jsonl"
    assert command_line.run("convert", there, back).exit_code == 0
    assert back.read_bytes() == path.read_bytes()
    old = write_records(tmp_path / "old.jsonl", records_of(path))
    for out in (tmp_path / "copy.kvtrace", tmp_path / "copy.jsonl.gz"):
        assert command_line.run("convert", old, out).exit_code == 0
        assert (end_of(out).sha256, end_of(out).actions) == (None, None)
    bad = forged(path, tmp_path / "bad.jsonl", half)
    assert command_line.run("convert", bad, tmp_path / "bad.kvtrace").exit_code == 2
    assert not (tmp_path / "bad.kvtrace").exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_slice_has_an_end_record_of_its_own(form: str, tmp_path: Path) -> None:
    path, out = in_form(tmp_path / "t", form), tmp_path / f"part{form}"
    assert command_line.run("slice", path, "--from", "0", "--to", "9", "--out", out).exit_code == 0
    assert end_of(out).events == 10 and sum((end_of(out).actions or {}).values()) == 10
    assert replay(out).verdict == INCOMPLETE


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_replay_that_goes_on_compares_what_it_did_not_read_again(form: str, checker: str, tmp_path: Path) -> None:
    path, by = in_form(tmp_path / "t", form), Chosen(checker)
    bad = forged(path, tmp_path / f"bad{form}", with_another_step)
    for trace in (path, bad):
        replay(trace, until=20, checker=by, checkpoints=Checkpoints(trace.with_suffix(".state")))
    assert (
        replay(path, checker=by, checkpoints=Checkpoints(path.with_suffix(".state")), resume=True).verdict == CONFORMS
    )
    again = {"checkpoints": Checkpoints(bad.with_suffix(".state")), "resume": True}
    assert "lines were left out or changed" in refused(replay, bad, checker=by, **again)


@pytest.mark.parametrize("form", FORMS)
def test_the_recorder_of_a_server_states_what_is_in_the_file(form: str, tmp_path: Path) -> None:
    """Also where the header is there before it, and where an end record was taken back."""
    path = tmp_path / f"t{form}"
    file = open_in_form(os.open(path, os.O_RDWR | os.O_CREAT), "".join(path.suffixes[-1:]), header_line(HEADER))
    for seq in range(3):
        file.add([event_line(seq, {"action": "check"}) + b"\n"])
        file.idle({"check": seq + 1})
    file.end("finished", actions={"check": 3})
    file.close()
    assert end_of(path).actions == {"check": 3} and end_of(path).sha256
    if form == ".jsonl":
        path.write_bytes(path.read_bytes().replace(b'"seq":1,"action":"check"', b'"seq":1,"action":"evict"'))
        assert "lines were left out or changed" in refused(end_of, path)


@pytest.mark.parametrize("form", [".jsonl", ".kvtrace"])
def test_who_watches_a_trace_compares_too(form: str, tmp_path: Path) -> None:
    def read(path: Path) -> End | None:
        source = source_of(GrowingFile(path))
        assert source is not None
        while source.end is None:
            for _ in source.new(columns=form == ".kvtrace"):
                pass
        return source.end

    path = in_form(tmp_path / "t", form)
    assert read(path) == end_of(path)
    bad = forged(path, tmp_path / f"bad{form}", with_another_step)
    assert "lines were left out or changed" in refused(read, bad)


def test_a_stated_action_that_is_none_is_noticed(tmp_path: Path) -> None:
    path = in_form(tmp_path / "t", ".jsonl")
    records = records_of(path)
    records[-1]["actions"]["nothing"] = 1
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert "1 nothing (the file holds 0)" in refused(replay, path)
