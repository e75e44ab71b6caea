"""A turn that is given up ends as an aborted one: each wrong line is seen, and the right ones are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_unified import write_unified

from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.conformance.adapters.sglang.code.give_up_claims import given_up
from kvproof.model.code.claims import DIFFERS, PROVED, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.profiles import PROFILES

FIRST, LATER = "abort_first, given up", "abort_nth, given up"


def checked(sglang: Path, name: str) -> Verdict:
    sources = Sources(Folder(sglang))
    release = release_of(sources, PROFILES["sglang-0.5.23"].actions)
    assert release is not None
    claim = next(claim for claim in given_up(release) if claim.name == name)
    return check(claim, sources, LIBRARIES, GIVEN)


@pytest.mark.parametrize("name", [FIRST, LATER])
def test_a_turn_that_ends_as_aborted_is_proved(tmp_path: Path, name: str) -> None:
    assert checked(write_unified(tmp_path), name).verdict == PROVED


WRONG = {
    "it is retracted": (FIRST, "            last.finished_reason = last.to_finish\n", ""),
    "a later one is retracted": (LATER, "            last.finished_reason = last.to_finish\n", ""),
    "nobody answers it": (LATER, "            aborted.append(last)\n", ""),
    "it is queued again": (LATER, "            aborted.append(last)\n", "            retracted.append(last)\n"),
    "it keeps its pages": (LATER, "            self.release_req(idx, 0)\n", ""),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_unified(tmp_path, right, wrong), name).verdict == DIFFERS
