"""A campaign finds what is there, makes it small, counts what is the same, and finds nothing where nothing is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import UNTIL_FOUND, completed, require_exit

pytest.importorskip("torch")
from fuzzing.campaigns import run_campaign

from kvproof.conformance.compiled.choose import INTERPRETED
from kvproof.conformance.fuzz import campaign as module
from kvproof.conformance.fuzz.campaign import Campaign, search
from kvproof.conformance.fuzz.play import CRASH, HANG, Played, Trouble, play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.fuzz.shrink import shrunk

LONG = Schedule(
    target="reference",
    settings={"page_size": 4, "overlap": True, "window": "page"},
    acts=(
        *(Act(do="step", times=9) for _ in range(7)),
        Act(do="turn", who=2, new_tokens=40, max_new_tokens=9, logprob=True),
        *(Act(do="send", new_tokens=7) for _ in range(5)),
        Act(do="retract", who=3),
        Act(do="step", times=30),
    ),
)


def needs_a_long_turn_before_a_retract(schedule: Schedule) -> bool:
    acts = [act.do for act in schedule.acts]
    long_turns = [place for place, act in enumerate(schedule.acts) if act.do == "turn" and act.new_tokens >= 17]
    return bool(long_turns) and "retract" in acts[long_turns[0] :] and schedule.settings.get("overlap") is True


def test_a_schedule_is_shrunk_to_what_it_takes() -> None:
    simplest = shrunk(LONG, needs_a_long_turn_before_a_retract, 60)
    assert simplest.settings == {"overlap": True}
    assert simplest.acts == (Act(do="turn", new_tokens=17), Act(do="retract"))


def test_what_is_shrunk_still_fails_when_the_time_is_up() -> None:
    assert shrunk(LONG, lambda schedule: pytest.fail("it is asked for more"), 0) == LONG


def searched(is_enough: Callable[[Campaign], bool], seed: int, **options: Any) -> Campaign:
    """Until it is enough: by counts, so that a machine that has much to do finds the same."""
    return run_campaign(Reference(), seconds=600, seed=seed, checker=INTERPRETED, is_enough=is_enough, **options)


def one_finding(seed: int) -> Campaign:
    return searched(lambda campaign: bool(campaign.found), seed, faults=("F22862a",))


def test_a_fault_is_found_named_and_made_small() -> None:
    campaign = one_finding(seed=1)
    assert all("F22862a" in found.trouble.faults for found in campaign.found.values())
    found = next(iter(campaign.found.values()))
    assert len(found.schedule.acts) <= 6
    again = play(found.schedule, Reference()).trouble
    assert again.signature == found.trouble.signature
    assert play(found.schedule.model_copy(update={"faults": ()}), Reference()).trouble is None


@pytest.mark.slow
def test_the_same_seed_finds_the_same() -> None:
    assert next(iter(one_finding(seed=2).found)) == next(iter(one_finding(seed=2).found))


class Unsteady:
    """Plays nothing. It tells of a trouble so many times, and then of none."""

    def __init__(self, says: Trouble, times: int) -> None:
        self._says, self._left = says, times

    def play(self, schedule: Schedule) -> Played:
        self._left -= 1
        return Played(schedule, None, None, 1, self._says if self._left >= 0 else None)

    recorded = play


@pytest.mark.parametrize(("kind", "times", "is_found"), [(HANG, 1, False), (HANG, 2, True), (CRASH, 1, True)])
def test_what_a_target_does_once_ends_no_search_and_a_hang_is_one_only_if_it_hangs_again(
    kind: str, times: int, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUND", 10)
    # The first job plays the seeds, which Hypothesis does not try again.
    campaign = Campaign(Reference(), (), {}, 1, 600.0, job=1)
    search(campaign, Unsteady(Trouble(kind, kind, "it stood still"), times), is_enough=lambda c: c.rounds == 3)
    assert (list(campaign.found) == [kind]) is is_found


def test_without_a_fault_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND", 10)
    campaign = searched(lambda campaign: campaign.rounds == 1, seed=3)
    assert not campaign.found
    assert campaign.schedules > len(campaign.target.seeds) + 9
    assert campaign.coverage.actions["finish"]


def test_a_known_finding_is_counted_and_the_search_goes_on() -> None:
    def found_twice(campaign: Campaign) -> bool:
        return any(found.times > 1 for found in campaign.found.values())

    assert found_twice(searched(found_twice, 1, faults=("F22862a",), pinned={"speculation": 2}))


def test_what_is_found_is_left_as_a_test_that_fails(tmp_path: Path) -> None:
    assert "F22862a" in require_exit(1, "fuzz", "--fault", "F22862a", *UNTIL_FOUND, "--out", tmp_path).output
    require_exit(1, "replay", tmp_path / "1" / "trace.jsonl")
    require_exit(1, "fuzz", "--replay", tmp_path / "1")

    test = tmp_path / "1" / "test_finding.py"
    pytest_it = [sys.executable, "-m", "pytest", "-q", test]
    failed = completed(pytest_it)
    assert failed.returncode == 1
    assert "match_slot: F22862a" in failed.stdout
    fixed = test.read_text().replace("FAULTS = ['F22862a']", "FAULTS = []")
    assert fixed != test.read_text()
    test.write_text(fixed)
    passed = completed(pytest_it)
    assert passed.returncode == 0, passed.stdout


def test_without_a_finding_the_exit_code_is_a_pass(tmp_path: Path) -> None:
    assert "nothing found" in require_exit(0, "fuzz", "--seconds", 1, "--set", "page_size=4", "--out", tmp_path).output
    assert (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "refernce"], "did you mean"),
        (["--target", "no_such_module:factory"], "there is no module"),
        (["--target", "json:loads"], "json:loads"),
        (["--set", "page_sise=4"], "page_size"),
        (["--set", "pool=endless"], "hopeless"),
        (["--fault", "F1"], "F1"),
        (["--replay", "nowhere"], "nowhere"),
        (["--out", "/dev/null/x"], "cannot write"),
    ],
)
def test_a_mistake_is_named_before_the_first_step(tmp_path: Path, arguments: list[str], said: str) -> None:
    out = [] if "--out" in arguments else ["--out", tmp_path]
    assert said in require_exit(2, "fuzz", "--seconds", 1, *out, *arguments).output
