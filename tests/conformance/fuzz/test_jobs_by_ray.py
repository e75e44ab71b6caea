"""A campaign by a Ray cluster of this machine: the same findings, and it continues when a worker is killed in the middle."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import command_line
import pytest
from command_line import require_exit
from killing import killing
from ray_workers import workers_of

pytest.importorskip("torch")
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions
from kvproof.conformance.fuzz.campaign_state import Plan, State
from kvproof.conformance.fuzz.jobs_by_ray import search_by_ray
from kvproof.conformance.fuzz.reference import Reference


def test_without_ray_the_answer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = command_line.run("fuzz", "--ray", "local", "--seconds", 1, "--out", tmp_path)
    assert result.exit_code == 2 and "pip install 'kvproof[ray]'" in result.output


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="kvproof[ray] is not installed")
class TestOnACluster:
    def test_what_is_found_there_is_left_here(self, tmp_path: Path) -> None:
        asked = ("--jobs", 2, "--fault", "F22862a", *command_line.UNTIL_FOUND, "--out", tmp_path)
        result = require_exit(1, "fuzz", "--ray", "local", *asked)
        assert "by 2 jobs" in result.output and "F22862a" in result.output
        require_exit(1, "replay", tmp_path / "1" / "trace.jsonl")

    def test_a_job_whose_worker_is_killed_goes_on(self, tmp_path: Path) -> None:
        plan, how = Plan("reference", seed=1), SearchOptions(10, jobs=2, isolates=True)
        whole = CampaignJobs(Reference(), State(plan), how, tmp_path, lambda *_: None)
        with killing(lambda: workers_of("search_slice")) as killed:
            search_by_ray(whole, "local")
        assert killed and whole.died == 1
        assert all(job.elapsed >= 10 and job.schedules for job in whole.jobs)
