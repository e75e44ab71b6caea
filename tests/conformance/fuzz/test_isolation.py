"""A target may exit, crash or hang: the campaign notes it, with what is known of it, and continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import hostile_target
import pytest
from command_line import completed, of_its_own, require_exit
from hostile_target import Hostile

pytest.importorskip("torch")
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.campaign import Campaign, search
from kvproof.conformance.fuzz.isolation import Isolated
from kvproof.conformance.fuzz.play import CRASH, EXIT, HANG, VIOLATION, play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule

GOES_WRONG = {
    hostile_target.raises: (CRASH, "crash: KeyError in <lambda>", "no such page"),
    hostile_target.exits: (EXIT, "exit: code 7", "step(), call 4 on the target, after 0 steps"),
    hostile_target.crashes: (EXIT, "exit: SIGSEGV in string_at", "ended with SIGSEGV"),
    hostile_target.sleeps: (HANG, "hang", "a step took more than 1 s"),
    hostile_target.hangs: (HANG, "hang", "step(), call 4 on the target, after 0 steps took more than 1 s"),
}
"""Kind and signature of the finding, and what its sentence says."""
HELPERS = str(Path(hostile_target.__file__).parent)
WRONG = Schedule(target="hostile", acts=(Act(do="open"), Act(do="send", new_tokens=3), Act(do="step")))
RIGHT = Schedule(target="hostile", acts=(Act(do="open"), Act(do="send", new_tokens=2), Act(do="step", times=3)))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.conformance.fuzz.isolation.GRACE_SECONDS", 1.0)


@pytest.mark.parametrize("target", GOES_WRONG)
def test_what_would_take_the_process_along_is_a_finding(target: Callable[[], Hostile]) -> None:
    kind, signature, said = GOES_WRONG[target]
    with closing(Isolated(target(), step_seconds=1.0 if kind == HANG else 60)) as player:
        assert player.play(RIGHT).trouble is None
        trouble = player.play(WRONG).trouble
        assert (trouble.kind, trouble.signature) == (kind, signature)
        assert said in trouble.sentence
        again = player.play(RIGHT)
        assert again.trouble is None and again.steps == 3


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (hostile_target.crashes, ("last words", "Segmentation fault", "hostile_target.py")),
        pytest.param(hostile_target.hangs, ("in hang_in_c",), marks=pytest.mark.slow),
    ],
)
def test_the_last_words_of_a_process_and_its_place_are_kept(
    target: Callable[[], Hostile], said: tuple[str, ...]
) -> None:
    with closing(Isolated(target(), step_seconds=0.1 if target is hostile_target.hangs else 60)) as player:
        trouble = player.play(WRONG).trouble
    assert [part for part in said if part not in trouble.trace] == []


def test_the_events_of_a_target_that_died_are_there_if_asked_for() -> None:
    with closing(Isolated(hostile_target.exits())) as player:
        played = player.recorded(WRONG)
        assert played.header is not None
        assert [event.action for event in played.events] == ["open"]
        assert player.play(WRONG).header is None


def test_elsewhere_the_same_is_found_as_here() -> None:
    acts = (Act(do="open"), Act(do="turn"), Act(do="step", times=2), Act(do="turn"))
    schedule = Schedule(target="reference", faults=("F22862a",), settings={"speculation": 2}, acts=acts)
    here = play(schedule, Reference())
    with closing(Isolated(Reference())) as player:
        there = player.play(schedule)
        fine = player.play(schedule.model_copy(update={"faults": ()}))
        with pytest.raises(UserError, match="hopeless"):
            player.play(schedule.model_copy(update={"settings": {"pool": "endless"}}))
    assert here.trouble is not None and here.trouble.kind == VIOLATION
    assert there.trouble == here.trouble
    assert (there.events, there.steps, there.coverage) == (here.events, here.steps, here.coverage)
    assert there.seen == here.seen > 0 and fine.seen > 0
    assert fine.trouble is None and fine.coverage.actions


def test_a_player_that_is_killed_is_a_finding_and_replaced() -> None:
    with closing(Isolated(hostile_target.survives())) as player:
        player.play(RIGHT)
        os.kill(player.pid, signal.SIGKILL)
        trouble = player.play(RIGHT).trouble
        assert trouble is not None and trouble.signature == "exit: SIGKILL"
        assert player.play(RIGHT).trouble is None


@pytest.mark.slow
@pytest.mark.parametrize("target", GOES_WRONG)
def test_the_campaign_goes_on_and_shrinks_it(target: Callable[[], Hostile]) -> None:
    campaign = Campaign(target(), (), {}, seed=1, seconds=6)
    with closing(Isolated(campaign.target, step_seconds=0.1)) as player:
        search(campaign, player, step_seconds=0.1)
    (found,) = campaign.found.values()
    assert [(act.do, act.new_tokens) for act in found.schedule.acts if act.do != "step"][-1][1] == 3
    assert len(found.schedule.acts) == 2
    assert found.schedule.settings == {}
    assert found.times > 1
    assert found.played.header is not None


def fuzzed(target: str, tmp_path: Path, *more: object) -> subprocess.CompletedProcess[str]:
    command = of_its_own("fuzz", "--target", target, "--out", tmp_path / "out", "--seed", 1, *more)
    return completed(command, timeout=600, env={"PYTHONPATH": HELPERS, "PATH": ""})


@pytest.mark.slow
def test_a_targets_exit_is_left_with_a_test_that_fails(tmp_path: Path) -> None:
    """What is no target of ours is isolated unless somebody says otherwise."""
    result = fuzzed("hostile_target:exits", tmp_path, "--seconds", 15, "--stop-after", 1)
    assert result.returncode == 1, result.stderr
    assert "exit: code 7" in result.stdout
    place = tmp_path / "out" / "1"
    assert "the process ended with code 7" in (place / "report.txt").read_text()
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", place / "test_finding.py"]
    failed = completed(test, timeout=600, env={"PYTHONPATH": HELPERS})
    assert failed.returncode == 1, failed.stdout
    assert "the process ended with code 7" in failed.stdout
    again = fuzzed("hostile_target:exits", tmp_path, "--replay", place)
    assert again.returncode == 1 and "exit: code 7" in again.stdout


@pytest.mark.slow
def test_without_isolation_it_is_the_users_choice(tmp_path: Path) -> None:
    assert fuzzed("hostile_target:exits", tmp_path, "--seconds", 15, "--no-isolate").returncode == 7


def test_a_target_that_cannot_start_says_so_first(tmp_path: Path) -> None:
    result = require_exit(2, "fuzz", "--isolate", "--seconds", 1, "--set", "pool=endless", "--out", tmp_path)
    assert "hopeless" in result.output
