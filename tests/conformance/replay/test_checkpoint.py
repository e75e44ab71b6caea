"""Checkpoints: a replay that continues says what one says that was never stopped, and no other trace's state is taken."""

from __future__ import annotations

import json
import os
import signal
import threading
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import command_line
import pytest
from many_traces import broken
from model_runs import CONFIGURATIONS
from run_traces import edited, records_of, refused, trace_of_walk
from trace_events import copied

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.checkpoint import Checkpoints, _canonical, _digest
from kvproof.conformance.replay.replay import Replayer, replay
from kvproof.conformance.replay.serialization import restore_state, state_as_data
from kvproof.conformance.replay.verdict import INCOMPLETE, VIOLATES, Report
from kvproof.conformance.traces import json_lines
from kvproof.conformance.traces.open_trace import read_trace

CHECKERS = ["interpreted", "compiled"]


def needs(*checkers: str) -> None:
    if "compiled" in checkers:
        pytest.importorskip("numba")


def some_trace(path: Path, seed: int = 3, **config: Any) -> Path:
    return trace_of_walk(path, 120, seed, **config)


def goes_on(path: Path, checkpoint: Path, checker: str = "auto", **options: Any) -> Report:
    """A replay from the checkpoint to the end."""
    return replay(path, checker=Chosen(checker), checkpoints=Checkpoints(checkpoint), resume=True, **options)


def in_parts(path: Path, checkpoint: Path, stops: list[int], checkers: list[str]) -> Report:
    """Replay up to each stop by the next checker, each time from the checkpoint of the time before; then to the end."""
    of_parts = cycle(checkers)
    first, *others = stops
    replay(path, checker=Chosen(next(of_parts)), until=first, checkpoints=Checkpoints(checkpoint))
    for until in others:
        goes_on(path, checkpoint, next(of_parts), until=until)
    return goes_on(path, checkpoint, next(of_parts))


@pytest.mark.parametrize("checkers", [["interpreted"], ["compiled"], ["compiled", "interpreted"]], ids="-".join)
@pytest.mark.parametrize(
    ("suffix", "config"), [*((".jsonl", c) for c in CONFIGURATIONS), (".kvtrace", {}), (".jsonl.gz", {})], ids=str
)
def test_a_replay_in_parts_says_what_one_in_one_go_says(
    suffix: str, config: dict[str, Any], checkers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(*checkers)
    path = some_trace(tmp_path / "t.jsonl", **config)
    if suffix != ".jsonl":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr("kvproof.conformance.traces.columnar_events.EVENTS_OF_A_BLOCK", 16)
        path = copied(path, tmp_path / f"t{suffix}")
    assert in_parts(path, tmp_path / "c.json", [0, 3, 15, 16, 17, 60, 99], checkers) == replay(path)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_violation_is_found_behind_a_checkpoint_and_stays_found(checker: str, tmp_path: Path) -> None:
    needs(checker)
    path, checkpoint = broken(tmp_path / "t.jsonl"), tmp_path / "c.json"
    whole = replay(path)
    assert whole.verdict == VIOLATES and whole.first is not None and whole.first.event.seq > 2
    assert in_parts(path, checkpoint, [2], [checker]) == whole
    assert goes_on(path, checkpoint, checker) == whole
    report = json.loads(checkpoint.read_text())["report"]
    report["findings"][0]["line"] = 0
    changed(checkpoint, report=report)
    assert "line 0 of a finding is no event's" in refused(goes_on, path, checkpoint)


def test_a_trace_that_grew_goes_on_where_it_ended(tmp_path: Path) -> None:
    whole = some_trace(tmp_path / "whole.jsonl").read_bytes()
    path, checkpoint = tmp_path / "t.jsonl", tmp_path / "c.json"
    path.write_bytes(whole[: len(whole) // 2])
    assert replay(path, checkpoints=Checkpoints(checkpoint)).verdict == INCOMPLETE
    path.write_bytes(whole)
    assert goes_on(path, checkpoint) == replay(path)


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Path, Path]:
    """A trace, and a checkpoint in the middle of it."""
    path, checkpoint = some_trace(tmp_path / "t.jsonl"), tmp_path / "c.json"
    replay(path, until=50, checkpoints=Checkpoints(checkpoint))
    return path, checkpoint


def test_only_what_comes_after_the_checkpoint_is_read_again(
    begun: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    parse = json_lines.TraceReader._parse
    monkeypatch.setattr(json_lines.TraceReader, "_parse", lambda self, n, line: fed.append(n) or parse(self, n, line))
    goes_on(*begun)
    assert min(fed) == 53, "line 2 is event 0"


def changed(checkpoint: Path, **changes: Any) -> None:
    """The checkpoint with other values, its checksum made right again: as a liar would."""
    data = {**json.loads(checkpoint.read_text()), **changes}
    data.pop("sha256")
    checkpoint.write_text(json.dumps({**data, "sha256": _digest(_canonical(data))}))


def test_what_does_not_belong_to_the_trace_is_refused_with_a_sentence(begun: tuple[Path, Path], tmp_path: Path) -> None:
    path, checkpoint = begun
    other = some_trace(tmp_path / "other.jsonl", window=1)
    assert "of another trace" in refused(goes_on, other, checkpoint)
    header = records_of(path)[0]
    same_header = edited(some_trace(tmp_path / "same.jsonl", seed=4), lambda records: records.__setitem__(0, header))
    assert "another file than when it was written, or it was changed" in refused(goes_on, same_header, checkpoint)
    assert "without --strict" in refused(goes_on, path, checkpoint, strict=True)
    assert "leave --resume out" in refused(goes_on, path, tmp_path / "none.json")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3].replace('"action"', ' "action"'), *lines[4:]]))
    assert "it was changed" in refused(goes_on, path, checkpoint)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"spec": "0"}, "written for specification '0'"),
        ({"kvproof_checkpoint": 99}, "not a checkpoint of format 4"),
        ({"state": {}}, "not a checkpoint as kvproof writes it"),
        ({"state": {"ledgers": {"request r": {"__class__": "os.system"}}}}, "not a checkpoint as kvproof writes it"),
        ({"report": 7}, "not a checkpoint as kvproof writes it"),
        ({"read": {"bytes": "all"}}, "not a checkpoint as kvproof writes it"),
        ({"place": [1, 2]}, "not a checkpoint as kvproof writes it"),
        ({"place": [4769, 0, 0, 21, 21]}, "line 0 is no event's"),
    ],
)
def test_a_strangers_checkpoint_is_data_and_is_refused_where_it_is_wrong(
    change: dict[str, Any], sentence: str, begun: tuple[Path, Path]
) -> None:
    changed(begun[1], **change)
    assert sentence in refused(goes_on, *begun)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"kvproof_checkpoint": 1}'])
def test_a_damaged_checkpoint_is_refused(content: str, begun: tuple[Path, Path]) -> None:
    _, checkpoint = begun
    checkpoint.write_text(checkpoint.read_text().replace('"events": ', '"events": 1'))
    assert "wrong checksum" in refused(goes_on, *begun)
    checkpoint.write_text(content)
    assert "cannot go on from the checkpoint" in refused(goes_on, *begun)


@pytest.mark.parametrize("checker", CHECKERS)
def test_ctrl_c_leaves_a_checkpoint_that_goes_on(checker: str, tmp_path: Path) -> None:
    """The signal comes in the middle of an event; the state that is written is that after it."""
    needs(checker)
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    path, before = some_trace(tmp_path / "t.jsonl"), signal.signal(signal.SIGINT, signal.default_int_handler)
    presses = iter([signal.SIGINT])

    def press(events: int, share: float | None) -> None:
        for once in presses:
            signal.raise_signal(once)

    try:
        with pytest.raises(KeyboardInterrupt):
            replay(path, checker=Chosen(checker), progress=press, checkpoints=Checkpoints(tmp_path / "c.json"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert goes_on(path, tmp_path / "c.json", checker) == replay(path)


def test_checkpoints_are_written_at_times_and_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, checkpoints = some_trace(tmp_path / "t.jsonl"), Checkpoints(tmp_path / "c.json", every=0)
    replay(path, checkpoints=checkpoints)
    assert checkpoints.written > 100
    whole = checkpoints.path.read_text()

    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    assert "No space left" in refused(replay, path, checkpoints=Checkpoints(checkpoints.path))
    assert checkpoints.path.read_text() == whole


def test_the_command_line_saves_and_goes_on(tmp_path: Path) -> None:
    path, checkpoint = some_trace(tmp_path / "t.jsonl"), tmp_path / "c.json"
    first = command_line.run("replay", path, "--to", 40, "--checkpoint", checkpoint)
    assert first.exit_code == 3
    assert "judged up to event 40" in first.stdout
    second = command_line.run("replay", path, "--checkpoint", checkpoint, "--resume")
    assert second.exit_code == 0
    assert second.stdout == command_line.run("replay", path).stdout
    assert "name it with --checkpoint" in command_line.refusal("replay", path, "--resume")
    two = command_line.refusal("replay", path, checkpoint, "--checkpoint", checkpoint)
    assert "--checkpoint is of one trace" in two


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=str)
def test_all_that_a_replayer_remembers_comes_back(config: dict[str, Any], tmp_path: Path) -> None:
    """Pins and counts as well: what is not in the file follows from what is."""
    path = some_trace(tmp_path / "t.jsonl", 5, **config)
    whole, fresh = (Replayer(read_trace(path), []) for _ in range(2))
    for line, event in islice(read_trace(path), 100):
        assert whole.feed(line, event) is None
    whole.asked = dict.fromkeys(whole.of_turn, 1)  # no walk asks for an abort
    restore_state(fresh, json.loads(json.dumps(state_as_data(whole))))
    for name in ("ledgers", "of_turn", "elsewhere", "ended_in", "late", "asked", "batch", "passes"):
        assert getattr(fresh, name) == getattr(whole, name)
    for name in ("_owners", "_tables", "_users"):
        assert getattr(fresh.book, name) == getattr(whole.book, name)
    assert list(fresh.book._tables) == list(whole.book._tables)
    assert fresh.book.protected == whole.book.protected
    assert +fresh.book._pins == +whole.book._pins and +fresh.book._counts == +whole.book._counts
    assert vars(fresh.book.window) == vars(whole.book.window)
    assert vars(fresh.book.prefixes) == vars(whole.book.prefixes)
    assert whole.ledgers or not config, "something was remembered"


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=str)
def test_prefixes_that_an_older_kvproof_did_not_write_are_unknown_not_wrong(
    config: dict[str, Any], tmp_path: Path
) -> None:
    path = some_trace(tmp_path / "t.jsonl", 5, **config)
    whole, fresh = (Replayer(read_trace(path), []) for _ in range(2))
    events = list(read_trace(path))[:-1]
    for line, event in events[:60]:
        assert whole.feed(line, event) is None
    state = state_as_data(whole)
    assert state.pop("prefixes") or not config.get("tree", True), "the tree had pages"
    restore_state(fresh, state)
    for line, event in events[60:]:
        assert fresh.feed(line, event) is None
