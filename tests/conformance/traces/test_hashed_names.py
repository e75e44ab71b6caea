"""A trace without the names that clients gave: the same verdict, and nothing of them left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import refusal, run
from golden import of_sglang_0523
from run_traces import Records, edited, renamed
from trace_events import copied, events_of

from kvproof.conformance.replay.replay import replay
from kvproof.conformance.traces.hashed_names import HashedNames
from kvproof.spec.trace import Event

SECRET = "alice@example.org asked: how do I"


@pytest.fixture(params=[".jsonl", ".kvtrace"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A real trace whose clients put words into names, and whose producer wrote down where the model lies."""
    lines = copied(of_sglang_0523("retract-p4"), tmp_path / "lines.jsonl")

    def speak(records: Records) -> None:
        records[0]["extra"]["model"] = SECRET
        records[-1]["reason"] = f"KeyError: {SECRET}"

    renamed(edited(lines, speak), f"{SECRET} {{}}".format, fields=("session", "turn"))
    return copied(lines, tmp_path / f"named{request.param}")


def test_nothing_of_a_name_is_left_and_the_verdict_is_the_same(named: Path, tmp_path: Path) -> None:
    out = tmp_path / "hashed.jsonl"
    assert run("convert", "--hash-names", named, out).exit_code == 0
    text = out.read_text()
    assert "alice" not in text and "how do I" not in text
    before, after = replay(named, profile="auto"), replay(out, profile="auto")
    assert (after.verdict, after.events, after.pages_moved) == (before.verdict, before.events, before.pages_moved)
    assert after.coverage == before.coverage
    assert json.loads(text.splitlines()[-1])["reason"] == "ended early"


def test_a_name_stays_the_same_in_a_trace_and_is_another_in_the_next(named: Path, tmp_path: Path) -> None:
    def sessions(path: Path) -> list[str | None]:
        return [event.session for event in events_of(path)]

    outs = [tmp_path / f"{n}.jsonl" for n in (1, 2)]
    for out in outs:
        run("convert", "--hash-names", named, out)
    first, second, original = *map(sessions, outs), sessions(named)
    assert len(set(first)) == len(set(original)) > 1
    assert [first.index(name) for name in first] == [original.index(name) for name in original]
    assert not (set(first) & set(second)) - {None}


def test_a_hash_is_of_the_salt_too() -> None:
    event = Event(seq=0, action="open", session="s")
    one, other = (HashedNames(salt).event(event).session for salt in (b"1", b"2"))
    assert one != other and one == HashedNames(b"1").event(event).session


def test_a_state_full_of_names_is_not_given_away(named: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    assert run("slice", named, "--from", 40, "--with-state", "--profile", "auto", "--out", part).exit_code in (0, 3)
    assert "hash the whole trace, then cut" in refusal("convert", "--hash-names", part, tmp_path / "out.jsonl")


def test_a_picture_is_drawn_of_the_hashed_trace(named: Path, tmp_path: Path) -> None:
    assert "hash that first" in refusal("convert", "--hash-names", named, tmp_path / "out.itf.json")
