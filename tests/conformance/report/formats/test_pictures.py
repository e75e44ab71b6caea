"""ITF and Perfetto of a trace: read by other people's readers, and showing what the trace holds."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import itf_py
import pytest
from command_line import run
from many_traces import broken
from repository import GOLDEN

from kvproof.conformance.report.formats import itf

PRESSURE = GOLDEN / "sglang-0.5.11-cpu" / "pressure.jsonl.gz"
RETRACT = GOLDEN / "sglang-0.5.11-cpu" / "retract.jsonl.gz"
convert = partial(run, "convert")
HOSTILE = 'a"b</script>\x00\x1b[31m\u2028{"#bigint": "x"}'


def itf_of(path: Path) -> Any:
    return itf_py.trace_from_json(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def violating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken(tmp_path_factory.mktemp("traces") / "violating.jsonl")


def require_chrome_trace(document: Any) -> None:
    """What the description of Chrome's trace event format demands of the kinds of event that are used here."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    open_slices: Counter[tuple[int, int]] = Counter()
    latest = 0
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= latest
        latest = event["ts"]
        match event["ph"]:
            case "C":
                assert event["args"] and all(isinstance(number, int) for number in event["args"].values())
            case "B":
                open_slices[event["pid"], event["tid"]] += 1
            case "E":
                open_slices[event["pid"], event["tid"]] -= 1
                assert min(open_slices.values()) >= 0
            case "X":
                assert event["dur"] > 0
            case "i":
                assert event["s"] in "gpt"
            case other:
                raise AssertionError(other)
        assert event["ph"] == "E" or event["name"]
    assert not +open_slices


def time_line(trace: Path, tmp_path: Path, exit_code: int = 0) -> list[Any]:
    """The events of the picture of a trace."""
    out = tmp_path / "o.perfetto.json"
    assert convert(trace, out).exit_code == exit_code
    document = json.loads(out.read_text(encoding="ascii"))
    require_chrome_trace(document)
    return document["traceEvents"]


def test_a_time_line_holds_every_event_and_every_page(tmp_path: Path) -> None:
    events = time_line(PRESSURE, tmp_path)
    done = [event for event in events if event["ph"] == "X"]
    assert [event["ts"] for event in done] == [1000 * seq for seq in range(526)]
    pages: dict[str, int] = {}
    for event in events:
        if event["ph"] == "C" and event["name"].startswith("pages: "):
            pages[event["name"]] = event["args"]["pages"]
    assert set(pages) == {f"pages: {owner}" for owner in ("free", "tree", "slots", "running")}
    assert sum(pages.values()) == 100  # at the end; no page is lost between counters
    lengths = {event["name"] for event in events if event["ph"] == "C"} - set(pages)
    assert lengths == {"kv_committed_len", "kv_allocated_len", "cache_protected_len"}


def test_slices_of_a_turn_stand_on_the_track_of_its_session(tmp_path: Path) -> None:
    events = time_line(PRESSURE, tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    turns = {(names[e["pid"]], e["name"]) for e in events if e["ph"] == "B" and e["cat"] == "turn"}
    assert ("session s1", "s1/01") in turns
    assert all(turn.split("/")[0] == of.removeprefix("session ") for of, turn in turns if of.startswith("session"))
    assert {e["name"] for e in events if e["ph"] == "B" and e["cat"] == "phase"} == {"waiting", "running"}


def test_the_bad_event_is_marked_and_is_the_last(tmp_path: Path, violating: Path) -> None:
    assert "it ends at event 7, which violates I4" in convert(violating, tmp_path / "said.perfetto.json").stdout
    (mark,) = [event for event in time_line(violating, tmp_path) if event["ph"] == "i"]
    assert mark["name"] == "violates I4" and mark["ts"] == 7000
    assert mark["args"]["explained by"] == "F22862b"
    assert "page 1 was freed" in mark["args"]["page 1"]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [("X", {"ts": 10**9}), ("X", {"dur": 0}), ("E", {"ph": "M"}), ("C", {"args": {"pages": "many"}})],
)
def test_the_check_of_the_time_line_refuses_a_damaged_one(tmp_path: Path, kind: str, damage: dict[str, Any]) -> None:
    events = time_line(RETRACT, tmp_path)
    next(event for event in events if event["ph"] == kind).update(damage)
    with pytest.raises((AssertionError, KeyError)):
        require_chrome_trace({"displayTimeUnit": "ms", "traceEvents": events})


def test_every_state_of_a_trace_is_read_by_itf_py(tmp_path: Path) -> None:
    out = tmp_path / "o.itf.json"
    assert convert(RETRACT, out).exit_code == 0
    trace = itf_of(out)
    assert len(trace.states) == 308
    assert trace.vars == list(itf.VARIABLES)
    assert all(set(state.values) == set(trace.vars) for state in trace.states)
    owned = {len(state.values["owners"]) + state.values["free_pages"] for state in trace.states}
    assert owned == {128}  # no page is in no state
    busiest = max(trace.states, key=lambda state: len(state.values["ledgers"]))
    assert {ledger.phase for ledger in busiest.values["ledgers"].values()} <= {"none", "waiting", "prefill", "running"}


def test_a_violating_trace_ends_with_what_it_breaks(tmp_path: Path, violating: Path) -> None:
    convert(violating, out := tmp_path / "o.itf.json")
    states = itf_of(out).states
    assert [bool(state.values["broken"]) for state in states] == [False] * 8 + [True]
    assert "I4" in states[-1].values["broken"]


def test_the_shortest_run_of_a_fault_is_saved_with_the_ghosts(tmp_path: Path) -> None:
    out = tmp_path / "run.itf.json"
    result = run("prove", "--fault", "F22862b", "-q", "--itf", out)
    assert result.exit_code == 1
    states = itf_of(out).states
    assert [state.values["action"] for state in states][-1] == "match_slot"
    assert (states[0].values["turns"], states[-1].values["turns"], states[-1].values["row_end"]) == (0, 1, 0)


def test_hostile_names_are_names_in_both(tmp_path: Path, violating: Path) -> None:
    (trace := tmp_path / "t.jsonl").write_text(violating.read_text().replace('"session-1"', json.dumps(HOSTILE)))
    convert(trace, states := tmp_path / "o.itf.json")
    named = [e["args"]["name"] for e in time_line(trace, tmp_path) if e.get("name") == "process_name"]
    assert f"session {HOSTILE}" in named
    assert list(itf_of(states).states[-1].values["ledgers"]) == [f"session {HOSTILE}"]


def test_a_picture_of_real_traces_follows_their_own_rules(tmp_path: Path) -> None:
    name = GOLDEN / "sglang-0.5.23" / "retract-p4.jsonl.gz"
    assert "it ends at" not in convert(name, tmp_path / "o.perfetto.json", "--profile", "auto").stdout


def test_what_cannot_be_drawn_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itf, "MOST_STATES", 100)
    too_long = convert(RETRACT, out := tmp_path / "o.itf.json")
    assert too_long.exit_code == 2 and "kvproof slice" in too_long.stderr
    assert not out.exists() and list(tmp_path.iterdir()) == []
    assert "copying it needs no rules" in convert(RETRACT, tmp_path / "o.jsonl", "--profile", "auto").stderr
    (tmp_path / "file").write_text("")
    assert "cannot write" in convert(RETRACT, tmp_path / "file" / "o.itf.json").stderr


def test_an_incomplete_trace_gives_an_incomplete_picture(tmp_path: Path, violating: Path) -> None:
    (part := tmp_path / "t.jsonl").write_text("\n".join(violating.read_text().splitlines()[:4]) + "\n")
    time_line(part, tmp_path, exit_code=3)
    assert "incomplete as the trace is" in convert(part, tmp_path / "said.perfetto.json").stdout
