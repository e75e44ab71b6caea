"""Differences of code as schedules: the run that shows each, and what a release is made to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sglang import write_sglang

from kvproof.conformance.code_proof.findings import Finding, find, small_runs
from kvproof.conformance.code_proof.loads import loads_of_finding, run_of, save_loads
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS
from kvproof.spec.profiles import PROFILES

ENDS_A_RETRACT = ("        if is_insert:", "        if True:")
CLAIMS_LAST = (
    "kv.kv_committed_len = min(kv.kv_committed_len, target)",
    "kv.kv_committed_len = min(kv.kv_allocated_len, target)",
)


def found(folder: Path, edit: tuple[str, str], name: str, profile: str | None = None) -> Finding:
    rules = PROFILES[profile] if profile else None
    return find(Sources(Folder(write_sglang(folder, *edit))), rules, name, small_runs(rules))


def test_the_run_of_a_difference_ends_with_its_action_in_its_state(tmp_path: Path) -> None:
    shown = found(tmp_path, ENDS_A_RETRACT, "retract").differences[0]
    run = run_of(shown, ACTIONS)

    last = run.steps[-1].outcome
    assert last.action.name == "retract" and not any(step.outcome.failed_guards for step in run.steps)
    assert last.before.kv_committed_len == shown.state["kv_committed_len"] > 0


def test_a_turn_is_retracted_beside_another_request_and_the_loads_are_read_back(tmp_path: Path) -> None:
    files = save_loads([found(tmp_path / "code", ENDS_A_RETRACT, "retract")], None, tmp_path / "loads")

    loads = [Schedule.load(file) for file in files]
    assert [file.name for file in files[:2]] == ["retract-1.json", "retract-2.json"]
    assert len({load.as_json() for load in loads}) == len(loads)
    assert all(load.target == "sglang" and load.acts[0].do == "send" for load in loads)
    assert all("retract" in [act.do for act in load.acts] for load in loads)


def test_a_round_has_a_draft_that_is_rejected(tmp_path: Path) -> None:
    loads = loads_of_finding(found(tmp_path, CLAIMS_LAST, "finish"), PROFILES["sglang-0.5.17"])

    assert loads and all(load.settings["drafts"] == 2 for load in loads)
    assert {load.profile for load in loads} == {"sglang-0.5.17"}


@pytest.mark.parametrize(("edit", "profile"), [(("", ""), None), (ENDS_A_RETRACT, "sglang-0.5.17")])
def test_what_is_proved_or_known_of_the_release_gives_no_load(
    tmp_path: Path, edit: tuple[str, str], profile: str | None
) -> None:
    assert loads_of_finding(found(tmp_path, edit, "retract", profile), None) == []
