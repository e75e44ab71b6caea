"""Turns that are not over where a trace ends, and closes that wait: by either checker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_traces import Records, edited, trace_of_steps

from kvproof.conformance.compiled.choose import CHECKERS, Chosen
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, Report, replay
from kvproof.spec.trace import FINISHED, STOPPED

TURN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("open", {}),
    ("create", {"origin_len": 3, "too_long": False, "logprob": False}),
    ("match_tree", {"matched_len": 0}),
)
RUNS = (
    *TURN,
    ("extend", {"seq_len": 3, "last": True}),
    ("result", {"tokens": 1}),
    ("insert", {"dup_len": 0, "key_len": 3}),
)
ENDS = (*RUNS, ("finish", {"finished_len": 1}), ("close", {}))
WAITS = "turn turn-1 of session session-1 waits"
DECODES = "turn turn-1 of session session-1 runs"
CLOSES = "the close of session session-1 waits"


def ended_by(reason: str) -> Callable[[Records], object]:
    return lambda records: records[-1].update(reason=reason)


@pytest.fixture(params=CHECKERS[1:])
def judged(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Report]:
    if request.param == "compiled":
        pytest.importorskip("numba")

    def judge(reason: str, *steps: tuple[str, dict[str, Any]]) -> Report:
        path = edited(trace_of_steps(tmp_path / "t.jsonl", 1, 8, *steps), ended_by(reason))
        return replay(path, checker=Chosen(request.param))

    return judge


def test_a_run_that_is_finished_leaves_nothing(judged: Callable[..., Report]) -> None:
    assert judged(FINISHED, *ENDS).verdict == CONFORMS


@pytest.mark.parametrize(
    ("steps", "left"),
    [(TURN, WAITS), (RUNS, DECODES), ((*RUNS, ("defer_close", {})), f"{DECODES}, {CLOSES}")],
    ids=["queued", "running", "closing"],
)
def test_a_run_that_is_said_to_be_finished_and_is_not_is_incomplete(
    steps: tuple[Any, ...], left: str, judged: Callable[..., Report]
) -> None:
    report = judged(FINISHED, *steps)
    assert report.verdict == INCOMPLETE
    assert report.why.endswith(f"the end record says 'finished', and {left}")


def test_a_close_that_was_never_carried_out_is_incomplete(judged: Callable[..., Report]) -> None:
    report = judged(FINISHED, *RUNS, ("defer_close", {}), ("finish", {"finished_len": 1}))
    assert (report.verdict, report.why.endswith(CLOSES)) == (INCOMPLETE, True)


def test_a_server_that_was_stopped_may_leave_turns_and_the_verdict_says_so(judged: Callable[..., Report]) -> None:
    report = judged(STOPPED, *RUNS)
    assert report.verdict == CONFORMS
    assert report.gaps[0] == f"what happens afterwards: the server was stopped while {DECODES}"
    assert not any("stopped" in gap for gap in judged(STOPPED, *ENDS).gaps)


def test_any_other_end_is_incomplete(judged: Callable[..., Report]) -> None:
    assert judged("crashed: IndexError", *ENDS).verdict == INCOMPLETE


def test_an_ordinary_request_that_waits_is_named(judged: Callable[..., Report]) -> None:
    assert judged(FINISHED, ("arrive", {"origin_len": 1})).why.endswith("request request-1 waits")
