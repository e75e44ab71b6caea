"""A campaign that was stopped continues where it was: what it found is known, what it tried counts, no seed is drawn twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import hostile_target
import pytest
from command_line import of_its_own, require_exit, run
from waiting import wait_until

pytest.importorskip("torch")
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, database_of
from kvproof.conformance.fuzz.campaign_state import STATE, Plan, State, campaigns_of, load_state
from kvproof.conformance.fuzz.jobs import search_here

TARGET = hostile_target.raises()


def searched(folder: Path, state: State, how: SearchOptions) -> CampaignJobs:
    whole = CampaignJobs(TARGET, state, how, folder, lambda *_: None)
    search_here(whole)
    whole.end()
    return whole


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    searched(tmp_path, State(Plan(TARGET.name, seed=3)), SearchOptions(19, most=1))
    return tmp_path


def test_what_was_done_is_there_again(stopped: Path) -> None:
    state = load_state(stopped)
    assert state.plan == Plan(TARGET.name, seed=3)
    (job,) = campaigns_of(state, TARGET, stopped)
    (found,) = job.found.values()
    assert found.trouble.signature in job.known
    assert found.schedule.acts and found.played.header is not None
    assert job.schedules >= 1 and job.rounds >= 1 and job.elapsed > 0
    assert job.coverage.actions["open"]


def test_it_goes_on_from_there(stopped: Path) -> None:
    (before,) = campaigns_of(load_state(stopped), TARGET, stopped)
    whole = searched(stopped, load_state(stopped), SearchOptions(2))
    (job,) = whole.jobs
    assert job.rounds > before.rounds
    assert job.schedules > before.schedules
    assert job.elapsed >= before.elapsed + 2
    (found,) = whole.total.found.values()
    assert found.number == 1 and found.times >= next(iter(before.found.values())).times
    assert [path.name for path in stopped.iterdir() if path.name.isdigit()] == ["1"]
    seconds = [sample.seconds for sample in whole.growth]
    assert seconds == sorted(seconds) and seconds[-1] >= 2


def test_more_jobs_may_go_on_than_began(stopped: Path) -> None:
    whole = CampaignJobs(TARGET, load_state(stopped), SearchOptions(1, jobs=3), stopped, lambda *_: None)
    assert [(job.job, job.schedules > 0) for job in whole.jobs] == [(0, True), (1, False), (2, False)]


def test_what_hypothesis_found_is_kept_and_tried_first(stopped: Path) -> None:
    def failing() -> set[Path]:
        return {path for path in (stopped / "examples" / "0").rglob("*") if path.is_file()}

    kept = failing()
    assert kept
    again = CampaignJobs(TARGET, State(Plan(TARGET.name, seed=99)), SearchOptions(19, most=1), stopped, lambda *_: None)
    search_here(again)
    (found,) = again.total.found.values()
    assert found.after_schedules == 1
    assert kept <= failing()


def test_the_database_drops_what_never_failed(tmp_path: Path) -> None:
    database = database_of(tmp_path, 0)
    for key in (b"key", b"key.pareto"):
        database.save(key, b"value")
        database.delete(key, b"value")
    assert list(database.fetch(b"key")) == [b"value"]
    assert not list(database.fetch(b"key.pareto"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no campaign to go on with"),
        ("{", "not JSON"),
        ("{}", "not the state of a campaign of format 2"),
        ("[]", "not the state of a campaign of format 2"),
    ],
)
def test_a_state_that_is_none_is_named(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / STATE).write_text(text)
    with pytest.raises(UserError, match=said):
        load_state(tmp_path)


@pytest.mark.parametrize("field", ["target", "jobs", "numbers", "growth"])
def test_a_damaged_state_is_named(stopped: Path, field: str) -> None:
    data = json.loads((stopped / STATE).read_text())
    data[field] = 3
    if field == "target":
        del data["target"]
    (stopped / STATE).write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"campaign\.json: not as kvproof writes it"):
        campaigns_of(load_state(stopped), TARGET, stopped)


def test_what_the_campaign_is_about_is_not_chosen_again(tmp_path: Path) -> None:
    require_exit(0, "fuzz", "--seconds", 0.5, "--set", "page_size=4", "--seed", 5, "--out", tmp_path)
    refused = run("fuzz", "--resume", "--seed", 6, "--out", tmp_path)
    assert refused.exit_code == 2 and "--seed with --resume" in refused.output
    require_exit(0, "fuzz", "--resume", "--seconds", 0.5, "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["seed"] == 5 and summary["settings"] == {"page_size": 4}
    assert summary["seconds"] >= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_leaves_what_can_be_gone_on_with(tmp_path: Path, jobs: int) -> None:
    asked = ("--seconds", 3600, "--out", tmp_path, "--checker", "interpreted", "--jobs", jobs)
    command = of_its_own("fuzz", *asked)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def has_played() -> bool:
        saved = tmp_path / STATE
        return saved.exists() and any(job["schedules"] for job in json.loads(saved.read_text())["jobs"])

    wait_until(has_played, "the first schedules")
    os.kill(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=300)
    assert process.returncode == 130, complained
    assert "schedules" in said and f"go on: kvproof fuzz --resume --out {tmp_path}" in said
    assert "Traceback" not in complained
    before = json.loads((tmp_path / "summary.json").read_text())["schedules"]
    assert before > 0
    require_exit(0, "fuzz", "--resume", "--seconds", 1, "--out", tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["schedules"] > before
