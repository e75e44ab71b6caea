"""A known deviation excuses the step that it describes, and nothing behind it: by either checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.replay import Report, replay
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.trace import STOPPED, Config, Header, Producer

pytest.importorskip("numba")


def judged(path: Path, *events: dict[str, Any]) -> Report:
    """By the rules of a release whose aborts in the queue leave the in-flight marker set."""
    header = Header(
        spec="1",
        producer=Producer(name="test", version="1", target="sglang 0.5.11"),
        config=Config(page_size=1, pool_pages=20, rows=4, row_width=10),
    )
    with write_trace(path, header) as writer:
        for event in events:
            writer.event(**event)
        writer.close(STOPPED)
    report = replay(path, profile=OF_THE_TRACE, checker=Chosen("interpreted"))
    assert replay(path, profile=OF_THE_TRACE, checker=Chosen("compiled")) == report
    return report


def session(action: str, turn: str | None = None, *, inflight: bool, **params: Any) -> dict[str, Any]:
    after = {"inflight": inflight, "closing": False, "checkpoint_len": 0, "slot_held": False}
    return {"action": action, "session": "s", "turn": turn, "params": params, "after": after}


OPEN = session("open", inflight=False)
CREATE = session("create", "t", inflight=True, origin_len=3, admitted=True)
WRONG_ABORT = session("abort", "t", inflight=True)
REFUSED = session("create", "u", inflight=True, origin_len=4, admitted=False)


def test_the_step_itself_is_excused_and_counted(tmp_path: Path) -> None:
    report = judged(tmp_path / "t.jsonl", OPEN, CREATE, WRONG_ABORT)
    assert (report.findings, report.followed) == ([], {"S0511b": 1})


def test_what_comes_of_it_for_the_next_turn_is_not(tmp_path: Path) -> None:
    report = judged(tmp_path / "t.jsonl", OPEN, CREATE, WRONG_ABORT, REFUSED)
    assert report.first is not None
    assert [fault.id for fault in report.first.explained_by] == ["S0511b"]
    assert list(report.first.invariants) == ["I15"]
    assert report.first.cause == "event 2 did what S0511b describes, and it was never set right"


def test_another_session_is_not_held_for_it(tmp_path: Path) -> None:
    others = [{**event, "session": "other", "turn": event["turn"] and "v"} for event in (OPEN, CREATE)]
    report = judged(tmp_path / "t.jsonl", OPEN, CREATE, WRONG_ABORT, *others)
    assert report.findings == []


def test_a_right_abort_is_no_deviation(tmp_path: Path) -> None:
    again = session("create", "u", inflight=True, origin_len=4, admitted=True)
    report = judged(tmp_path / "t.jsonl", OPEN, CREATE, session("abort", "t", inflight=False), again)
    assert (report.findings, report.followed) == ([], {})
