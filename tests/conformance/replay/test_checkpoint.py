"""Checkpoints: a replay that goes on says what one says that was never stopped, and no other trace's state is taken."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import command_line
import pytest
from model_runs import CONFIGURATIONS, walk

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.drive.counterexample import save_counterexample, write_witness
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.replay import Replayer, replay
from kvproof.conformance.replay.serialization import restore_state, state_as_data
from kvproof.conformance.replay.verdict import INCOMPLETE, VIOLATES
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.model.explore import counterexample
from kvproof.model.witness import witness
from kvproof.spec.faults import FAULTS
from kvproof.spec.trace import Event

CHECKERS = ["interpreted", "compiled"]


def needs(*checkers: str) -> None:
    if "compiled" in checkers:
        pytest.importorskip("numba")


def some_trace(path: Path, seed: int = 3, **config: Any) -> Path:
    write_witness(witness(walk(2, 9, 120, 3, seed, **config), 2, 9, **config), path, {})
    return path


def in_columns(lines: Path, path: Path, events_of_a_block: int) -> Path:
    reader = read_trace(lines)
    with write_trace(path, reader.header) as writer:
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)
                if writer.events % events_of_a_block == 0:
                    writer.flush()  # type: ignore[attr-defined]
    return path


def in_parts(path: Path, checkpoint: Path, stops: list[int], checkers: list[str]) -> Any:
    """Replay up to each stop by the next checker, each time from the checkpoint of the time before; then to the end."""
    for number, until in enumerate([*stops, None]):
        checker = checkers[number % len(checkers)]
        report = replay(
            path,
            checker=Chosen(checker),
            until=until,
            checkpoints=Checkpoints(checkpoint),
            resume=number > 0,
            strict=False,
        )
    return report


@pytest.mark.parametrize("checkers", [["interpreted"], ["compiled"], ["compiled", "interpreted"]], ids="-".join)
@pytest.mark.parametrize(
    ("suffix", "config"), [*((".jsonl", c) for c in CONFIGURATIONS), (".kvtrace", {}), (".jsonl.gz", {})], ids=str
)
def test_a_replay_in_parts_says_what_one_in_one_go_says(
    suffix: str, config: dict[str, Any], checkers: list[str], tmp_path: Path
) -> None:
    needs(*checkers)
    path = some_trace(tmp_path / "t.jsonl", **config)
    if suffix == ".kvtrace":
        pytest.importorskip("pyarrow")
        path = in_columns(path, tmp_path / "t.kvtrace", 16)
    elif suffix == ".jsonl.gz":
        packed = gzip.compress(path.read_bytes(), mtime=0)
        path = tmp_path / "t.jsonl.gz"
        path.write_bytes(packed)
    assert in_parts(path, tmp_path / "c.json", [0, 3, 15, 16, 17, 60, 99], checkers) == replay(path)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_violation_is_found_behind_a_checkpoint_and_stays_found(checker: str, tmp_path: Path) -> None:
    needs(checker)
    path, fault = tmp_path / "t.jsonl", FAULTS["F22862b"]
    run = counterexample(fault)
    assert run is not None
    save_counterexample(run, fault, path)
    whole = replay(path)
    assert whole.verdict == VIOLATES and whole.first is not None and whole.first.event.seq > 2
    assert in_parts(path, tmp_path / "c.json", [2], [checker]) == whole
    assert replay(path, checker=Chosen(checker), checkpoints=Checkpoints(tmp_path / "c.json"), resume=True) == whole
    report = json.loads((tmp_path / "c.json").read_text())["report"]
    report["findings"][0]["line"] = 0
    changed(tmp_path / "c.json", report=report)
    assert "line 0 of a finding is no event's" in refused(path, tmp_path / "c.json")


def test_a_trace_that_grew_goes_on_where_it_ended(tmp_path: Path) -> None:
    whole = some_trace(tmp_path / "whole.jsonl").read_bytes()
    path, checkpoint = tmp_path / "t.jsonl", Checkpoints(tmp_path / "c.json")
    path.write_bytes(whole[: len(whole) // 2])
    assert replay(path, checkpoints=checkpoint).verdict == INCOMPLETE
    path.write_bytes(whole)
    resumed = replay(path, checkpoints=Checkpoints(checkpoint.path), resume=True)
    assert resumed == replay(path)


def test_only_what_comes_after_the_checkpoint_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = some_trace(tmp_path / "t.jsonl")
    replay(path, until=99, checkpoints=Checkpoints(tmp_path / "c.json"))
    fed: list[int] = []
    from kvproof.conformance.traces import json_lines

    parse = json_lines.TraceReader._parse
    monkeypatch.setattr(json_lines.TraceReader, "_parse", lambda self, n, line: fed.append(n) or parse(self, n, line))
    replay(path, checkpoints=Checkpoints(tmp_path / "c.json"), resume=True)
    assert min(fed) == 102, "line 2 is event 0"


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Path, Path]:
    """A trace, and a checkpoint in the middle of it."""
    path, checkpoint = some_trace(tmp_path / "t.jsonl"), tmp_path / "c.json"
    replay(path, until=50, checkpoints=Checkpoints(checkpoint))
    return path, checkpoint


def changed(checkpoint: Path, **changes: Any) -> None:
    """The checkpoint with other values, its checksum made right again: as a liar would."""
    from kvproof.conformance.replay.checkpoint import _canonical, _digest

    data = {**json.loads(checkpoint.read_text()), **changes}
    data.pop("sha256")
    checkpoint.write_text(json.dumps({**data, "sha256": _digest(_canonical(data))}))


def refused(path: Path, checkpoint: Path, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        replay(path, checkpoints=Checkpoints(checkpoint), resume=True, **options)
    return error.value.message


def test_what_does_not_belong_to_the_trace_is_refused_with_a_sentence(begun: tuple[Path, Path], tmp_path: Path) -> None:
    path, checkpoint = begun
    other = some_trace(tmp_path / "other.jsonl", window=1)
    assert "of another trace" in refused(other, checkpoint)
    same_header = some_trace(tmp_path / "same.jsonl", seed=4)
    assert "another file than when it was written, or it was changed" in refused(same_header, checkpoint)
    assert "without --strict" in refused(path, checkpoint, strict=True)
    assert "leave --resume out" in refused(path, tmp_path / "none.json")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3].replace('"action"', ' "action"'), *lines[4:]]))
    assert "it was changed" in refused(path, checkpoint)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"spec": "0"}, "written for specification '0'"),
        ({"kvproof_checkpoint": 99}, "not a checkpoint of format 2"),
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
    path, checkpoint = begun
    changed(checkpoint, **change)
    assert sentence in refused(path, checkpoint)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"kvproof_checkpoint": 1}'])
def test_a_damaged_checkpoint_is_refused(content: str, begun: tuple[Path, Path]) -> None:
    path, checkpoint = begun
    checkpoint.write_text(checkpoint.read_text().replace('"events": ', '"events": 1'))
    assert "wrong checksum" in refused(path, checkpoint)
    checkpoint.write_text(content)
    assert "cannot go on from the checkpoint" in refused(path, checkpoint)


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
            os.kill(os.getpid(), once)

    try:
        with pytest.raises(KeyboardInterrupt):
            replay(path, checker=Chosen(checker), progress=press, checkpoints=Checkpoints(tmp_path / "c.json"))
    finally:
        signal.signal(signal.SIGINT, before)
    resumed = replay(path, checker=Chosen(checker), checkpoints=Checkpoints(tmp_path / "c.json"), resume=True)
    assert resumed == replay(path)


def test_checkpoints_are_written_at_times_and_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, checkpoints = some_trace(tmp_path / "t.jsonl"), Checkpoints(tmp_path / "c.json", every=0)
    replay(path, checkpoints=checkpoints)
    assert checkpoints.written > 100
    whole = checkpoints.path.read_text()

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(UserError, match="No space left"):
        replay(path, checkpoints=Checkpoints(checkpoints.path))
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
    assert "--checkpoint is of one trace" in command_line.refusal(
        "replay", path, checkpoint, "--checkpoint", checkpoint
    )


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=str)
def test_all_that_a_replayer_remembers_comes_back(config: dict[str, Any], tmp_path: Path) -> None:
    """Pins and counts as well: what is not in the file follows from what is."""
    path = some_trace(tmp_path / "t.jsonl", 5, **config)
    whole, fresh = (Replayer(read_trace(path), []) for _ in range(2))
    for line, record in read_trace(path):
        if isinstance(record, Event) and record.seq < 100:
            assert whole.feed(line, record) is None
    restore_state(fresh, json.loads(json.dumps(state_as_data(whole))))
    for name in ("ledgers", "of_turn", "elsewhere", "ended_in"):
        assert getattr(fresh, name) == getattr(whole, name)
    for name in ("_owners", "_tables", "_users"):
        assert getattr(fresh.book, name) == getattr(whole.book, name)
    assert list(fresh.book._tables) == list(whole.book._tables)
    assert fresh.book.protected == whole.book.protected
    assert +fresh.book._pins == +whole.book._pins and +fresh.book._counts == +whole.book._counts
    assert vars(fresh.book.window) == vars(whole.book.window)
    assert whole.ledgers or not config, "something was remembered"
