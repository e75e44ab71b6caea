"""Several searches of one campaign: each draws its own schedules, what they find is merged, one that dies is begun again."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from pathlib import Path

import hostile_target
import pytest
from command_line import UNTIL_FOUND, require_exit, run
from killing import killing

pytest.importorskip("torch")
from kvproof.conformance.fuzz.campaign import Campaign, Found, merged
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions
from kvproof.conformance.fuzz.campaign_state import Plan, State
from kvproof.conformance.fuzz.jobs import search_by_processes
from kvproof.conformance.fuzz.play import CRASH, Played, Trouble
from kvproof.conformance.fuzz.schedule import Act, Schedule


def job_with(number: int, *found: tuple[str, int, float]) -> Campaign:
    """A job that found trouble: each with its signature, the acts of its schedule, and when."""
    job = Campaign(hostile_target.survives(), (), {}, 1, 9.0, number, schedules=10 + number, elapsed=5.0 + number)
    for place, (signature, acts, when) in enumerate(found, 1):
        schedule = Schedule(target="hostile", acts=(Act(do="step"),) * acts)
        trouble = Trouble(CRASH, signature, f"job {number}")
        played = Played(schedule, None, None, acts, trouble)
        job.found[signature] = Found(place, played, times=number + 1, after_seconds=when)
        job.known.add(signature)
    return job


JOBS = (
    job_with(0, ("a", 3, 2.0), ("b", 5, 3.0)),
    job_with(1, ("b", 2, 4.0), ("c", 4, 1.0)),
    job_with(2, ("b", 2, 4.5)),
)


def test_what_is_the_same_was_found_once_and_the_simplest_is_kept() -> None:
    total = merged(JOBS, {})
    assert {s: (f.number, len(f.schedule.acts), f.times, f.after_seconds) for s, f in total.found.items()} == {
        "c": (1, 4, 2, 1.0),
        "a": (2, 3, 1, 2.0),
        "b": (3, 2, 6, 3.0),
    }
    assert (total.schedules, total.elapsed) == (33, 7.0)


def test_the_order_of_the_jobs_makes_no_difference() -> None:
    def as_merged(jobs: tuple[Campaign, ...]) -> object:
        total = merged(jobs, {})
        return total.schedules, [(s, f.number, f.schedule, f.times) for s, f in total.found.items()]

    assert all(as_merged(jobs) == as_merged(JOBS) for jobs in itertools.permutations(JOBS))


def test_a_finding_keeps_its_number() -> None:
    numbers = {"b": 1}
    assert {s: f.number for s, f in merged(JOBS, numbers).found.items()} == {"b": 1, "c": 2, "a": 3}
    assert numbers == {"b": 1, "c": 2, "a": 3}


def test_what_is_not_shrunk_yet_is_not_told() -> None:
    job = job_with(0, ("a", 3, 2.0))
    job.known.clear()
    assert merged([job], {}).found == {}


def test_no_two_jobs_and_rounds_draw_from_one_seed() -> None:
    seeds = {
        Campaign(hostile_target.survives(), (), {}, seed, 1.0, job, rounds).seed_of_round
        for seed, job, rounds in itertools.product(range(4), range(4), range(50))
    }
    assert len(seeds) == 4 * 4 * 50


def processes(name: str) -> list[int]:
    return [process.pid for process in multiprocessing.active_children() if process.name == name and process.pid]


def whole_of(target: hostile_target.Hostile, folder: Path, seconds: float, **how: object) -> CampaignJobs:
    plan = Plan(target.name, seed=1)
    return CampaignJobs(target, State(plan), SearchOptions(seconds, isolates=True, **how), folder, lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_job_that_is_killed_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.conformance.fuzz.jobs.SLICE_SECONDS", 0.5)
    whole = whole_of(hostile_target.exits(), tmp_path, 5, jobs=2)
    with killing(lambda: processes("kvproof-job-1"), 2, every=0.7) as killed:
        search_by_processes(whole)
    whole.end()
    assert len(killed) == 2 and whole.died == 2
    assert [job.job for job in whole.jobs] == [0, 1]
    assert all(job.elapsed >= 5 and job.schedules > 5 for job in whole.jobs)
    (found,) = whole.total.found.values()
    assert found.trouble.signature == "exit: code 7"
    assert (tmp_path / "1" / "report.txt").exists()
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_job_that_always_dies_is_given_up_and_the_campaign_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.conformance.fuzz.jobs.go_on", lambda *_: os._exit(9))
    whole = whole_of(hostile_target.survives(), tmp_path, 3600, jobs=2)
    search_by_processes(whole)
    assert whole.died == 10


@pytest.mark.slow
def test_jobs_find_together_what_one_finds(tmp_path: Path) -> None:
    result = require_exit(1, "fuzz", "--fault", "F22862a", "--jobs", 2, *UNTIL_FOUND, "--out", tmp_path)
    assert "by 2 jobs" in result.output and "F22862a" in result.output
    require_exit(1, "replay", tmp_path / "1" / "trace.jsonl")


def test_the_cores_of_a_cluster_are_not_counted_here(tmp_path: Path) -> None:
    result = run("fuzz", "--ray", "local", "--jobs", 0, "--out", tmp_path)
    assert result.exit_code == 2 and "give the number of jobs" in result.output
