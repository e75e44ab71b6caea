"""How far a replay is, in words."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.conformance.cli import progress_bar
from kvproof.conformance.cli.progress_bar import FuzzPace, ReplayPace, ShrinkPace, StepsPace
from kvproof.conformance.report.terminal import bar, in_time
from kvproof.model.prove import prove, steps_of
from kvproof.spec.faults import FAULTS, Fault


class Screen:
    """What a pace shows; `seconds` since the run began."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lines: list[str] = []

    def show(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def screen() -> Any:
    return Screen()


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ([(0, 0.0), (5000, 0.25)], "[######..................] 25%, 5,000 events, 500 events/s, 0:30 left"),
        # A replay that was resumed counts from where it went on.
        ([(80_000, 0.8), (85_000, 0.85)], "[####################....] 85%, 85,000 events, 500 events/s, 0:30 left"),
        # Of a packed file no share is known.
        ([(0, None), (1000, None)], "1,000 events, 100 events/s"),
        ([(0, 0, 4), (2000, 1, 4)], "[######..................] 1 of 4, 2,000 events, 200 events/s, 0:30 left"),
    ],
)
def test_rate_share_and_time_left_are_said(
    screen: Any, monkeypatch: pytest.MonkeyPatch, told: list[tuple[Any, ...]], line: str
) -> None:
    clock = iter((0.0, 10.0))
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(clock))
    pace = ReplayPace(screen)
    for values in told:
        (pace.of_many if len(values) == 3 else pace)(*values)
    assert screen.lines[-1] == line


def test_bars_and_times_have_their_bounds() -> None:
    assert (bar(0.0), bar(1.0)) == (f"[{'.' * 24}]", f"[{'#' * 24}]")
    assert bar(2.0) == bar(1.0), "a file that grew while it was read"
    assert (in_time(59), in_time(61), in_time(3661)) == ("0:59", "1:01", "1:01:01")


def test_a_search_shows_its_time_and_the_steps_of_this_run(screen: Any) -> None:
    tell = FuzzPace(screen, 60)
    tell(100, 5_000, 1)  # of the run before
    screen.seconds = 15.0
    tell(400, 20_000, 2)
    assert screen.lines[-1] == "[######..................] 15 of 60 s, 400 schedules, 1,000 steps/s, 2 found"
    screen.seconds = 61.0
    tell(410, 20_400, 2)
    assert "60 of 60 s, shrinking what was found, 410 schedules" in screen.lines[-1]


def test_shrinking_names_its_phase(screen: Any) -> None:
    tell = ShrinkPace(screen)
    tell("looking for the first finding", 7)
    tell("leaving out", 1200, 0.25)
    assert screen.lines == [
        "looking for the first finding: 7 records",
        "[######..................] 25% leaving out: 1,200 records",
    ]


def test_a_proof_shows_which_step_it_is_at(screen: Any) -> None:
    screen.seconds = 2.0
    tell = StepsPace(screen, 4)
    for what in ("one", "two", "three"):
        tell(what)
    assert screen.lines[-1] == "[############............] 2 of 4, 1.0/s: three"


@pytest.mark.parametrize("fault", [FAULTS["F22790d"], pytest.param(None, marks=pytest.mark.slow)])
def test_a_proof_has_as_many_steps_as_it_says(fault: Fault | None) -> None:
    begun: list[str] = []
    prove(fault, begun.append)
    assert len(begun) == steps_of(fault)
