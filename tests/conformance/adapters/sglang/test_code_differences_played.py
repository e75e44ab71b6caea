"""What the proof of code says of a release's functions, the release is seen to do: the same fault, at the same action."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import RELEASES, called, site_of

from kvproof.conformance.code_proof.findings import find, small_runs
from kvproof.conformance.code_proof.loads import save_loads
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.model.code.source import Sources


@pytest.mark.sglang
@pytest.mark.parametrize(
    ("rule", "fault"), [("match_slot", "F22862a"), ("detach", "F21875b"), ("abort_first", "S0510a")]
)
def test_a_difference_is_seen_when_its_schedule_is_played(rule: str, fault: str, tmp_path: Path) -> None:
    require_seen(RELEASES[0], rule, fault, tmp_path)


@pytest.mark.sglang_full
def test_a_round_that_is_not_launched_is_seen(tmp_path: Path) -> None:
    require_seen("0.5.17", "finish", "S0517a", tmp_path)


def require_seen(release: str, rule: str, fault: str, folder: Path) -> None:
    [target] = targets_of(str(site_of(release)))
    finding = find(Sources(target.tree), target.profile(), rule, small_runs(target.profile()))
    files = save_loads([finding], target.profile(), folder)
    assert f"{rule}: {fault}" in called(release, "played_schedule:signatures", *files)
