"""A turn that is given up ends as an aborted one: each wrong line is seen, and the right ones are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_unified import claim_checked, write_unified

from kvproof.model.code.claims import DIFFERS, PROVED

FIRST, LATER = "abort_first, given up", "abort_nth, given up"


@pytest.mark.parametrize("name", [FIRST, LATER])
def test_a_turn_that_ends_as_aborted_is_proved(tmp_path: Path, name: str) -> None:
    assert claim_checked(write_unified(tmp_path), name).verdict == PROVED


WRONG = {
    "it is retracted": (FIRST, "            last.finished_reason = last.to_finish\n", ""),
    "a later one is retracted": (LATER, "            last.finished_reason = last.to_finish\n", ""),
    "nobody answers it": (LATER, "            aborted.append(last)\n", ""),
    "it is queued again": (LATER, "            aborted.append(last)\n", "            retracted.append(last)\n"),
    "it keeps its pages": (LATER, "            self.release_req(idx, 0)\n", ""),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_unified(tmp_path, right, wrong), name).verdict == DIFFERS
