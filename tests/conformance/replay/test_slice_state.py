"""`kvproof slice --with-state`: a replay of a window finds what a replay of the whole trace finds there."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from pathlib import Path
from typing import Any

import command_line
import pytest
from many_traces import broken
from model_runs import CONFIGURATIONS
from run_traces import Records, edited, first_finding, records_of, trace_of_walk

from kvproof.conformance.compiled.choose import COMPILED, INTERPRETED, Chosen
from kvproof.conformance.replay import slice_state
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Finding
from kvproof.conformance.traces.open_trace import read_trace

run, refusal = partial(command_line.run, "slice"), partial(command_line.refusal, "slice")
CHECKERS = [INTERPRETED, COMPILED]
FAULTS_SEEN = ("F22862b", "F20070", "F12224", "F22213", "S0511d")


def needs(checker: str) -> None:
    if checker == COMPILED:
        pytest.importorskip("numba")


def some_trace(path: Path, seed: int = 3, **config: Any) -> Path:
    return trace_of_walk(path, 80, seed, **config)


def cut(trace: Path, *options: object, name: str = "o.jsonl") -> Path:
    result = run(trace, *options, "--with-state", "--out", trace.parent / name)
    assert result.exit_code == 0, result.output
    return trace.parent / name


def there(finding: Finding | None) -> Finding | None:
    """A finding but for the file and the line that it stands on."""
    return None if finding is None else dataclasses.replace(finding, path=Path(), line=0)


def changed(trace: Path, seed: int = 3) -> Path:
    """The trace with one page more, or less, in some list of a late event."""
    chance = random.Random(seed)

    def change(records: Records) -> None:
        listed = [(r, n) for r in records[len(records) // 2 :] for n in ("alloc", "free") if r.get(n)]
        record, name = chance.choice(listed)
        record[name] = record[name][1:] if chance.random() < 0.5 else [*record[name], 7]

    return edited(trace, change)


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("fault_id", FAULTS_SEEN)
def test_any_window_around_a_finding_gives_that_finding(tmp_path: Path, fault_id: str, checker: str) -> None:
    needs(checker)
    trace = broken(tmp_path / "t.jsonl", fault_id)
    found = first_finding(trace)
    for first in range(found.event.seq + 1):
        report = replay(cut(trace, "--from", first), checker=Chosen(checker))
        assert report.verdict == VIOLATES
        assert there(report.first) == there(found)
        assert report.events == found.event.seq + 1 - first


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_a_window_of_any_run_says_what_the_run_says(tmp_path: Path, config: dict[str, Any], checker: str) -> None:
    needs(checker)
    for seed in (3, 8):
        trace = some_trace(tmp_path / "t.jsonl", seed, **config)
        assert replay(trace).verdict == CONFORMS
        for window in (("--from", 1, "--to", 20), ("--from", 17, "--to", 50), ("--from", 60)):
            report = replay(cut(trace, *window), checker=Chosen(checker))
            assert (report.verdict, report.findings) == (INCOMPLETE, []), "a part is never the whole"
            assert "the run ended early: a slice, cut after event" in report.why
        found = first_finding(changed(trace, seed))
        first = random.Random(seed).randint(1, found.event.seq)
        for name in ("o.jsonl", "o.jsonl.gz", "o.kvtrace"):
            if name.endswith(".kvtrace"):
                pytest.importorskip("pyarrow")
            assert there(replay(cut(trace, "--from", first, name=name), checker=Chosen(checker)).first) == there(found)


def test_without_the_state_a_finding_would_be_another(tmp_path: Path) -> None:
    """The state is what makes the window: with that of another place the first event of the rest is wrong."""
    path = cut(some_trace(tmp_path / "t.jsonl"), "--from", 40)
    nothing = {"ledgers": {}, "of_turn": {}, "tables": [], "owned": {}}
    edited(path, lambda records: records[0]["extra"]["slice"]["checkpoint"]["state"].update(nothing))
    assert replay(path).verdict == VIOLATES


def test_a_slice_of_a_slice_goes_on_from_its_state(tmp_path: Path) -> None:
    trace = changed(some_trace(tmp_path / "t.jsonl"))
    found = first_finding(trace)
    assert found.event.seq > 35
    again = cut(cut(trace, "--from", 20), "--from", 35, name="p.jsonl")
    assert there(replay(again).first) == there(found)


def test_what_the_verdict_rests_on_is_said(tmp_path: Path) -> None:
    result = command_line.run("replay", cut(some_trace(tmp_path / "t.jsonl"), "--from", 40))
    assert result.exit_code == 3
    assert "what was before event 40: the state that the slice carries is believed" in " ".join(result.stdout.split())


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_replay_of_a_window_can_be_stopped_and_go_on(tmp_path: Path, checker: str) -> None:
    needs(checker)
    path = cut(changed(some_trace(tmp_path / "t.jsonl")), "--from", 20)
    whole = replay(path, checker=Chosen(checker))
    for until in (25, 30, None):
        resume = until != 25
        checkpoints = Checkpoints(tmp_path / "state.json")
        report = replay(path, checker=Chosen(checker), until=until, checkpoints=checkpoints, resume=resume)
    assert report == whole


def test_of_turns_only_those_of_the_window_are_carried(tmp_path: Path) -> None:
    trace = some_trace(tmp_path / "t.jsonl")
    whole = slice_state.state_before(trace, 60, {f"turn-{n}" for n in range(99)})["state"]
    carried = read_trace(cut(trace, "--from", 60)).slice.checkpoint["state"]  # type: ignore[union-attr,index]
    assert carried.keys() == whole.keys() and len(carried["elsewhere"]) < len(whole["elsewhere"])


def test_what_cannot_be_carried_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = broken(tmp_path / "t.jsonl", "F20070")
    found, later = first_finding(trace), len(records_of(trace)) - 2

    def go_on(records: Records) -> None:
        records[-1:] = [records[1] | {"seq": later, "session": "another"}, records[-1] | {"events": later + 1}]

    edited(trace, go_on)
    out, seq = tmp_path / "o.jsonl", found.event.seq
    said = refusal(trace, "--from", later, "--with-state", "--out", out)
    assert f"event {seq} breaks a rule, so the state before event {later} is not known: cut --from {seq}" in said
    assert "leave --session and --page out" in refusal(trace, "--session", "s", "--with-state", "--out", out)
    monkeypatch.setattr(slice_state, "LONGEST_RECORD", slice_state.HEADER_BESIDE + 10)
    assert "more than a header may" in refusal(trace, "--from", 2, "--with-state", "--out", out)
    assert not out.exists()
