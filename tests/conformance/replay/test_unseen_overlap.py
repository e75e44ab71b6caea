"""A header that says overlap over a run in which no step was prepared early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_traces import edited, trace_of_steps

from kvproof.conformance.compiled.choose import CHECKERS, Chosen
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, Report, replay
from kvproof.conformance.replay.unseen_overlap import FEW

BEGIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("arrive", {"origin_len": 3}),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 3, "last": True}),
)
RESULT, DECODE = ("result", {"tokens": 1}), ("decode", {})


def judged(path: Path, checker: str, *steps: tuple[str, dict[str, Any]], overlap: bool = True) -> Report:
    if checker == "compiled":
        pytest.importorskip("numba")
    trace = trace_of_steps(path, 1, 64, *BEGIN, *steps, overlap=overlap)
    return replay(edited(trace, lambda records: records[-1].update(reason="stopped")), checker=Chosen(checker))


@pytest.mark.parametrize("checker", CHECKERS[1:])
def test_many_steps_of_which_none_overlaps_are_incomplete(checker: str, tmp_path: Path) -> None:
    report = judged(tmp_path / "t.jsonl", checker, *[RESULT, DECODE] * (FEW + 1))
    assert report.verdict == INCOMPLETE
    assert report.why.endswith(
        f"the header says overlap, and none of {FEW + 1} decode steps was prepared before the result of the one before it"
    )


@pytest.mark.parametrize("checker", CHECKERS[1:])
def test_a_few_are_said_and_conform(checker: str, tmp_path: Path) -> None:
    """A short run of an honest server is no alarm."""
    report = judged(tmp_path / "t.jsonl", checker, *[RESULT, DECODE] * FEW)
    assert report.verdict == CONFORMS
    assert any(gap.startswith("overlap, which the header says: none of") for gap in report.gaps)


@pytest.mark.parametrize("checker", CHECKERS[1:])
def test_one_step_that_was_prepared_early_shows_it(checker: str, tmp_path: Path) -> None:
    report = judged(tmp_path / "t.jsonl", checker, *[RESULT, DECODE] * FEW, DECODE, RESULT)
    assert report.verdict == CONFORMS and not any("overlap" in gap for gap in report.gaps)


def test_without_overlap_nothing_of_it_is_missed(tmp_path: Path) -> None:
    report = judged(tmp_path / "t.jsonl", "interpreted", *[RESULT, DECODE] * (FEW + 1), overlap=False)
    assert report.verdict == CONFORMS and not any("overlap" in gap for gap in report.gaps)
