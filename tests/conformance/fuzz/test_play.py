"""A schedule is played to its end; whatever can go wrong on the way has a name of its own, and the first is what counts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hostile_target import Hostile, HostileRun
from hypothesis import given, settings

pytest.importorskip("torch")
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.generate import schedules
from kvproof.conformance.fuzz.play import CRASH, EXIT, HANG, LEAK, OWN_CHECK, STUCK, VIOLATION, play
from kvproof.conformance.fuzz.reference import Reference, ReferenceRun
from kvproof.conformance.fuzz.schedule import Act, Schedule, Setting
from kvproof.conformance.fuzz.target import Tell
from kvproof.impl.observe import Event

TWO_TURNS = (
    Act(do="open"),
    Act(do="turn", new_tokens=9, max_new_tokens=5),
    Act(do="step", times=3),
    Act(do="send", new_tokens=30, max_new_tokens=5, shared=4),
    Act(do="launch"),
    Act(do="abort", who=1),
    Act(do="step", times=30),
    Act(do="turn", new_tokens=9, max_new_tokens=5),
)


class OwnMistake(Exception):
    pass


class Broken(Hostile):
    """A target with one thing wrong."""

    own_errors = (OwnMistake,)

    def __init__(self, **wrong: Any) -> None:
        super().__init__("broken", lambda: None)
        self.wrong = wrong

    def start(self, settings: Any, faults: Any, tell: Tell, *, own_checks: bool = True) -> BrokenRun:
        if "start" in self.wrong:
            raise self.wrong["start"]
        return BrokenRun(self.wrong, tell)


class BrokenRun(HostileRun):
    def __init__(self, wrong: dict[str, Any], tell: Tell) -> None:
        super().__init__(lambda: None, tell)
        self.wrong = wrong

    def step(self) -> None:
        if "tells" in self.wrong:
            self._tell(self.wrong["tells"])
        if "raises" in self.wrong:
            raise self.wrong["raises"]
        time.sleep(self.wrong.get("sleeps", 0))

    def unfinished(self) -> list[str]:
        return self.wrong.get("waiting", [])

    def not_returned(self) -> str | None:
        return self.wrong.get("missing")


ONE_STEP = Schedule(target="broken", acts=(Act(do="step"),))


def test_what_is_right_is_played_to_its_end() -> None:
    played = play(Schedule(target="reference", acts=TWO_TURNS), Reference())
    assert played.trouble is None
    assert [e.action for e in played.events].count("finish") == 2
    assert played.events[-1].action == "close"
    assert played.coverage.actions["decode"] >= 5


@settings(max_examples=10)
@given(schedules(Reference()))
def test_any_schedule_without_a_fault_is_survived(schedule: Schedule) -> None:
    played = play(schedule, Reference())
    assert played.trouble is None, played.trouble


def test_a_finding_of_the_model_names_the_fault() -> None:
    acts = (Act(do="open"), Act(do="turn"), Act(do="step", times=2), Act(do="turn"))
    schedule = Schedule(target="reference", faults=("F22862a",), settings={"speculation": 2}, acts=acts)
    trouble = play(schedule, Reference()).trouble
    assert (trouble.kind, trouble.faults) == (VIOLATION, ("F22862a",))
    assert trouble.signature == "match_slot: F22862a"
    assert trouble.finding is not None and "I7" in trouble.finding.invariants


def test_what_the_census_finds_first_is_its_own() -> None:
    schedule = Schedule(target="reference", faults=("F22735",), acts=(Act(do="send"),))
    trouble = play(schedule, Reference()).trouble
    assert trouble.kind == OWN_CHECK
    assert "lock_ref # and # holders" in trouble.signature


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"raises": ZeroDivisionError("by 7")}, CRASH),
        ({"raises": OwnMistake("page 3 is lost")}, OWN_CHECK),
        ({"raises": SystemExit("over")}, EXIT),
        ({"start": ZeroDivisionError("by 7")}, CRASH),
        ({"start": SystemExit("over")}, EXIT),
        ({"sleeps": 5}, HANG),
        ({"waiting": ["r0"]}, STUCK),
        ({"missing": "3 of 8 pages are missing"}, LEAK),
        ({"tells": Event("finish", 1, session="s", turn="r")}, VIOLATION),
        ({"tells": Event("finish", 1, session="s", turn="r"), "raises": ZeroDivisionError()}, VIOLATION),
    ],
)
def test_each_way_to_go_wrong_is_told_apart(wrong: dict[str, Any], kind: str) -> None:
    trouble = play(ONE_STEP, Broken(**wrong), step_seconds=0.05 if kind == HANG else 60).trouble
    assert trouble.kind == kind
    assert not any(digit in trouble.signature for digit in "37")


def test_a_target_without_a_mistake_gives_none() -> None:
    assert play(ONE_STEP, Broken()).trouble is None


def test_settings_that_cannot_work_are_the_users() -> None:
    with pytest.raises(UserError, match="page_size"):
        play(Schedule(target="reference", settings={"page_size": "large"}), Reference())


def test_a_schedule_is_what_was_saved(tmp_path: Path) -> None:
    schedule = Schedule(target="reference", faults=("F994a",), settings={"page_size": 4}, acts=TWO_TURNS)
    schedule.save(tmp_path / "schedule.json")
    assert Schedule.load(tmp_path / "schedule.json") == schedule


@pytest.mark.parametrize("text", ["", "{", "[]", '{"target":"reference","acts":[{"do":"jump"}]}', '{"target":1}'])
def test_what_is_no_schedule_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "schedule.json").write_text(text)
    with pytest.raises(UserError, match=r"schedule\.json.*no schedule"):
        Schedule.load(tmp_path / "schedule.json")


@pytest.mark.parametrize("window", [0, 1])
def test_an_output_that_other_pages_would_give_is_the_targets_own_finding(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page has its owner and every sum is right; what stands in the pages is wrong."""
    with_a_model: dict[str, Setting] = {"forward": "transformer", "page_size": 4, "window": window}
    schedule = Schedule(target="reference", settings=with_a_model, acts=TWO_TURNS)
    assert play(schedule, Reference()).trouble is None
    step = ReferenceRun.step

    def step_and_forget(self: ReferenceRun) -> None:
        step(self)
        for buffers in self._scheduler.runner.layers.buffers:  # type: ignore[attr-defined]
            for buffer in buffers:
                buffer.zero_()

    monkeypatch.setattr(ReferenceRun, "step", step_and_forget)
    trouble = play(schedule, Reference()).trouble
    assert trouble is not None and trouble.kind == OWN_CHECK
    assert "without a cache it is" in trouble.sentence
