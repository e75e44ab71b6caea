"""`kvproof slice`: windows, sessions and pages; a slice never looks like the whole trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import command_line
import pytest
from run_traces import Records, edited
from trace_events import HEADER as PLAIN_HEADER
from trace_events import all_in, events_of, written

from kvproof.conformance.replay.replay import INCOMPLETE, VIOLATES, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.slices import Slice
from kvproof.spec import SPEC_VERSION

HEADER = PLAIN_HEADER.model_copy(update={"extra": {"seed": 7}})
# Not a run that any server made: what a slice keeps follows from names and pages alone.
EVENTS: list[dict[str, Any]] = [
    {"action": "open", "session": "s"},  # 0
    {"action": "open", "session": "t"},  # 1
    {"action": "create", "session": "s", "turn": "a", "params": {"admitted": False, "origin_len": 3}},  # 2
    {"action": "extend", "session": "t", "turn": "b", "alloc": (5, 6)},  # 3
    {"action": "arrive", "turn": "a"},  # 4
    {"action": "extend", "turn": "a", "alloc": (7,), "shared": (5,)},  # 5
    {"action": "result", "turn": "a"},  # 6
    {"action": "finish", "turn": "a", "free": (7,)},  # 7
    {"action": "result", "turn": "a"},  # 8
    {"action": "close", "session": "t", "free": (6,)},  # 9
    {"action": "open", "session": "t"},  # 10
    {"action": "check"},  # 11
    {"action": "evict", "free": (5,)},  # 12
    {"action": "close", "session": "s"},  # 13
]


run, refusal = partial(command_line.run, "slice"), partial(command_line.refusal, "slice")


@pytest.fixture(params=["t.jsonl", "t.kvtrace"])
def trace(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("kvproof.conformance.traces.columnar_events.EVENTS_OF_A_BLOCK", 3)
    return written(tmp_path / request.param, EVENTS, HEADER)


def cut(trace: Path, *options: object, name: str = "o.jsonl") -> list[int]:
    """The seqs that a slice keeps."""
    result = run(trace, *options, "--out", trace.parent / name)
    assert result.exit_code == 0, result.output
    return [event.seq for event in events_of(trace.parent / name)]


@pytest.mark.parametrize("name", ["o.jsonl", "o.jsonl.gz", "o.kvtrace"])
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), range(14)),
        (("--from", 5), range(5, 14)),
        (("--to", 5), range(6)),
        (("--from", 4, "--to", 9), range(4, 10)),
        (("--from", 12, "--to", 999), range(12, 14)),
        (("--session", "s"), [0, 2, 4, 5, 6, 7, 8, 13]),
        (("--session", "t"), [1, 3, 9, 10]),
        (("--page", 5), [3, 5, 6, 7, 9, 12]),
        (("--page", 6), [3, 9]),
        (("--page", 5, "--from", 6, "--to", 9), [6, 7, 9]),
        (("--page", 5, "--session", "s"), [5, 6, 7]),
    ],
)
def test_what_a_slice_keeps(trace: Path, options: tuple[object, ...], kept: list[int], name: str) -> None:
    assert cut(trace, *options, name=name) == list(kept)
    original = events_of(trace)
    assert events_of(trace.parent / name) == [original[seq] for seq in kept]


def test_the_header_says_what_was_cut_and_keeps_the_rest(trace: Path) -> None:
    cut(trace, "--from", 2, "--to", 9, "--session", "s")
    header = read_trace(trace.parent / "o.jsonl").header
    assert header.extra == {"seed": 7, "slice": {"first": 2, "last": 9, "session": "s"}}
    assert header.config == HEADER.config


@pytest.mark.parametrize("options", [("--from", 3), ("--session", "s"), ("--page", 5), ("--from", 3, "--to", 13)])
def test_what_does_not_start_from_nothing_is_not_replayed(trace: Path, options: tuple[object, ...]) -> None:
    cut(trace, *options)
    report = replay(trace.parent / "o.jsonl")
    assert (report.verdict, report.events) == (INCOMPLETE, 0)
    assert "a slice, events " in report.why and "it cannot be replayed" in report.why
    assert ("(kvproof slice --with-state)" in report.why) == ("--from" in options)
    result = command_line.run("replay", trace.parent / "o.jsonl")
    assert result.exit_code == 3 and "it cannot be replayed" in result.stdout


def test_a_beginning_is_replayed_up_to_the_cut_and_never_passes(trace: Path) -> None:
    cut(trace, "--to", 1)
    report = replay(trace.parent / "o.jsonl")
    assert (report.verdict, report.events) == (INCOMPLETE, 2)
    assert "the run ended early: a slice, cut after event 1" in report.why
    cut(trace, "--to", 3)
    assert replay(trace.parent / "o.jsonl").verdict == VIOLATES


def test_a_slice_of_everything_ends_as_the_trace_does(trace: Path) -> None:
    cut(trace)
    assert all_in(trace.parent / "o.jsonl")[-1] == all_in(trace)[-1]


@pytest.mark.parametrize(
    "state",
    [
        {"ledgers": {}},
        {"kvproof_state": 2, "spec": SPEC_VERSION},
        {"kvproof_state": 2, "spec": SPEC_VERSION, "state": []},
        {"kvproof_state": 2, "spec": SPEC_VERSION, "state": {"ledgers": {"session s": {"phase": 0}}}},
        {"kvproof_state": 3, "spec": SPEC_VERSION, "state": {}},
        {"kvproof_state": 2, "spec": "0", "state": {}},
    ],
)
def test_a_state_of_another_shape_is_refused(trace: Path, state: dict[str, Any]) -> None:
    cut(trace, "--from", 3)
    path = trace.parent / "o.jsonl"
    edited(path, lambda records: records[0]["extra"]["slice"].update(checkpoint=state))
    said = command_line.refusal("replay", path)
    assert f"{path}:1: the state that this slice carries is not as this kvproof writes it" in said


def test_a_slice_of_a_slice_keeps_both(trace: Path) -> None:
    cut(trace, "--session", "s", "--from", 2)
    again = trace.parent / "o.jsonl"
    assert cut(again, "--to", 6, name="p.jsonl") == [2, 4, 5, 6]
    assert read_trace(trace.parent / "p.jsonl").slice == Slice(first=2, last=6, session="s")
    message = refusal(again, "--session", "t", "--out", trace.parent / "q.jsonl")
    assert "is a slice of session s already: nothing of session t is in it" in message


def test_what_cannot_be_cut_leaves_nothing(trace: Path) -> None:
    out = trace.parent / "o.jsonl"
    assert "no such event: nothing was written" in refusal(trace, "--session", "nobody", "--out", out)
    assert "no such event" in refusal(trace, "--from", 14, "--out", out)
    backwards = refusal(trace, "--from", 5, "--to", 4, "--out", out)
    assert "--from 5 --to 4: the first event stands after the last" in backwards
    assert "is the trace that is read" in refusal(trace, "--to", 4, "--out", trace)
    assert [path.name for path in trace.parent.iterdir()] == [trace.name]


def test_a_trace_that_breaks_off_before_the_slice_ends_gives_an_incomplete_slice(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-20])
    result = run(trace, "--from", 2, "--out", trace.parent / "o.kvtrace")
    assert result.exit_code == 3 and "incomplete as the trace is" in result.stdout
    assert not read_all(trace.parent / "o.kvtrace").complete
    assert run(trace, "--from", 2, "--to", 9, "--out", trace.parent / "p.kvtrace").exit_code == 0
    assert read_all(trace.parent / "p.kvtrace").complete


def read_all(path: Path) -> Any:
    reader = read_trace(path)
    list(reader)
    return reader


# --- slices that were made by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "seqs", "message"),
    [
        ({"first": 3, "last": 9}, [0], "event seq 0, expected 3"),
        ({"first": 3, "last": 9}, [3, 5], "event seq 5, expected 4"),
        ({"first": 3, "last": 9, "page": 1}, [5, 4], "event seq 4, expected 6"),
        ({"first": 3, "last": 9, "page": 1}, [5, 10], "event seq 10 in a slice that ends with 9"),
        ({"first": 3, "last": 9, "page": 1}, [2], "event seq 2, expected 3"),
        ({"first": -1}, [], "field 'extra.slice.first'"),
        ({"frist": 1}, [], "field 'extra.slice."),
        ([], [], "field 'extra.slice'"),
    ],
)
def test_a_slice_that_does_not_hold_what_its_header_says_is_refused(
    tmp_path: Path, said: Any, seqs: list[int], message: str
) -> None:
    def change(records: Records) -> None:
        records[0]["extra"]["slice"] = said
        records[1:-1] = [{"record": "event", "seq": seq, "action": "open"} for seq in seqs]

    path = edited(written(tmp_path / "t.jsonl", [], HEADER), change)
    result = command_line.run("info", path)
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_who_held_a_page_is_left_when_the_page_is_freed(tmp_path: Path) -> None:
    moved = {"extend": {"alloc": (3,)}, "result": {}, "retract": {"free": (3,)}, "match": {}}
    events = [{"action": action, "session": "s", "turn": "a", **pages} for action, pages in moved.items()]
    written(tmp_path / "t.jsonl", events)
    assert cut(tmp_path / "t.jsonl", "--page", 3) == [0, 1, 2]


def test_only_a_slice_from_the_beginning_may_end_as_the_trace_does(trace: Path) -> None:
    cut(trace, "--from", 3)
    assert read_all(trace.parent / "o.jsonl").end.reason == "a slice, cut after event 13"
