"""Who is offered to the adder, and how it is added: each wrong line is seen, and the right ones are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_scheduler import write_scheduler
from small_unified import claim_checked

from kvproof.conformance.adapters.sglang.code.admission_claims import admission
from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.model.code.claims import DIFFERS, NOT_UNDERSTOOD, PROVED
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.profiles import PROFILES

ROW, PREFIX = "match_slot, admission", "extend, admission"


@pytest.mark.parametrize("name", [ROW, PREFIX])
def test_right_admission_is_proved(tmp_path: Path, name: str) -> None:
    assert claim_checked(write_scheduler(tmp_path), name).verdict == PROVED


WRONG = {
    "the whole queue needs a free row": (ROW, "(running_bs, held) <= 0", "(running_bs) <= 0"),
    "each request needs a free row": (ROW, " + self._has_row(req)", ""),
    "a session's row counts for nothing": (ROW, "return slot is not None and slot.kv.holds_kv", "return False"),
    "rows count for nothing": (ROW, "available_size() + num_held_rows", "available_size()"),
    "nothing is offered": (ROW, "if adder.add_one_req(req) != AddReqResult.CONTINUE:", "if True:"),
    "a prefix is not asked for": (PREFIX, "req.prefix_len == 0 and is_alone", "is_alone"),
    "a prefix is wanted": (PREFIX, "req.prefix_len == 0 and", "req.prefix_len > 0 and"),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_scheduler(tmp_path, right, wrong), name).verdict == DIFFERS


UNCLEAR = {
    "a class that something else makes": (ROW, "class Scheduler(", "@dispatch\nclass Scheduler("),
    "a method that is no function of the class": (
        ROW,
        "    def _has_row(self, req)",
        "    @other\n    def _has_row(self, req)",
    ),
    "a method of a base": (ROW, "self._has_row(req) for", "self.of_a_base(req) for"),
    "a third way": (PREFIX, "return self._mamba_gap_budget_for_req(req)", "return None"),
    "a class that the import changes": (ROW, "def dispatch_event_loop", "Scheduler.x = 1\n\ndef dispatch_event_loop"),
}


@pytest.mark.parametrize(("name", "right", "wrong"), UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_not_read_is_never_a_pass(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_scheduler(tmp_path, right, wrong), name).verdict == NOT_UNDERSTOOD


def test_a_release_that_counts_no_rows_has_no_claim(tmp_path: Path) -> None:
    sources = Sources(Folder(write_scheduler(tmp_path, "num_held_rows", "number")))
    release = release_of(sources, PROFILES["sglang-0.5.23"].actions)
    assert release is not None
    assert not [*admission(release)]
