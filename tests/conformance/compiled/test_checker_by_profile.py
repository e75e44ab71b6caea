"""The compiled checker by the rules of a release: what the interpreted one says by them, on any trace."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from golden import OF_SGLANG_0523
from hypothesis import given
from model_runs import CONFIGURATIONS, OF_A_WALK
from run_traces import trace_of_draw, trace_of_walk

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from checker_runs import assert_same, few, read_records, stops_at, with_an_eviction, with_one_change, write_records

from kvproof.conformance.compiled import build
from kvproof.conformance.replay.replay import CONFORMS, Report, replay
from kvproof.spec.actions import ACTIONS
from kvproof.spec.profiles import PROFILES

NEWEST = "sglang-0.5.23"


@pytest.mark.slow
@few
@given(**OF_A_WALK)
def test_any_run_by_another_design_and_any_change_to_it_get_the_same_answer(tmp_path: Path, **of_walk: Any) -> None:
    config = {**of_walk["config"], "actions": PROFILES[NEWEST].actions}
    path = trace_of_draw(tmp_path / "t.jsonl", **{**of_walk, "config": config})
    report = assert_same(path, profile=NEWEST)
    assert isinstance(report, Report) and report.verdict == CONFORMS
    records, chance = read_records(path), random.Random(of_walk["seed"])
    for change in (with_one_change, with_one_change, with_an_eviction):
        write_records(path, change(records, chance))
        assert_same(path, profile=NEWEST)


@pytest.mark.slow
@pytest.mark.parametrize("trace", sorted(OF_SGLANG_0523.glob("*.jsonl.gz")), ids=lambda path: path.stem)
def test_a_trace_of_the_release_gets_the_same_answer_by_both_rules(trace: Path) -> None:
    for strict in (False, True):
        assert_same(trace, strict)
        assert_same(trace, strict, profile=NEWEST)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_loop_of_a_profile_judges_runs_by_its_rules_alone(profile: str, tmp_path: Path) -> None:
    """Nothing is handed over, in any configuration; and the loop of the model's rules stops where the designs differ."""
    rules = PROFILES[profile]
    own, model = (build.plain_judge(actions) for actions in (rules.actions, ACTIONS))
    stopped = 0
    for seed, config in enumerate([*CONFIGURATIONS, {"window": 2, "tree": False}]):
        path = tmp_path / "t.jsonl"
        trace_of_walk(path, 40, seed, row_width=7, ledgers=2, **config, actions=rules.actions)
        assert stops_at(path, own, rules) is None
        assert replay(path, profile=profile).verdict == CONFORMS
        stopped += stops_at(path, model) is not None
    assert stopped


def test_each_profile_has_rules_of_its_own_and_all_have_one_loop() -> None:
    judges = {name: build.the_judge(profile.actions) for name, profile in PROFILES.items()}
    again = build.the_judge(PROFILES[NEWEST].actions)
    judges["the model's"] = build.the_judge(ACTIONS)
    assert len({id(judge.machine_code) for judge in judges.values()}) == len(judges)
    assert len({id(judge.loop) for judge in judges.values()}) == 1
    assert again.machine_code is judges[NEWEST].machine_code
