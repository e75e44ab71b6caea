"""How far a replay is, in words."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.conformance.cli import progress_bar as pace
from kvproof.conformance.cli.progress_bar import FuzzPace, ReplayPace, StepsPace
from kvproof.conformance.report.terminal import bar, in_time
from kvproof.model.prove import prove, steps_of
from kvproof.spec.faults import FAULTS


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a pace shows when it is told something every ten seconds."""
    lines: list[str] = []
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(pace.time, "monotonic", lambda: next(clock))

    class Screen:
        def show(self, line: str) -> None:
            lines.append(line)

    made: Any = ReplayPace(Screen())  # type: ignore[arg-type]
    made.lines = lines
    return made


def test_rate_share_and_time_left_are_said(shown: Any) -> None:
    shown(0, 0.0)
    shown(5000, 0.25)
    assert shown.lines[-1] == "[######..................] 25%, 5,000 events, 500 events/s, 0:30 left"


def test_a_resumed_replay_counts_from_where_it_went_on(shown: Any) -> None:
    shown(80_000, 0.8)
    shown(85_000, 0.85)
    assert shown.lines[-1].endswith("85,000 events, 500 events/s, 0:30 left")


def test_of_a_packed_file_no_share_is_claimed(shown: Any) -> None:
    shown(0, None)
    shown(1000, None)
    assert shown.lines[-1] == "1,000 events, 100 events/s"


def test_of_many_traces_those_that_are_done_are_said(shown: Any) -> None:
    shown.of_many(0, 0, 4)
    shown.of_many(2000, 1, 4)
    assert shown.lines[-1] == "[######..................] 1 of 4, 2,000 events, 200 events/s, 0:30 left"


def test_bars_and_times_have_their_bounds() -> None:
    assert (bar(0.0), bar(1.0)) == (f"[{'.' * 24}]", f"[{'#' * 24}]")
    assert bar(2.0) == bar(1.0), "a file that grew while it was read"
    assert (in_time(59), in_time(61), in_time(3661)) == ("0:59", "1:01", "1:01:01")


class Screen:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lines: list[str] = []

    def show(self, line: str) -> None:
        self.lines.append(line)


def test_a_search_shows_its_time_and_the_steps_of_this_run() -> None:
    screen: Any = Screen(0.0)
    tell = FuzzPace(screen, 60)
    tell(100, 5_000, 1)  # of the run before
    screen.seconds = 15.0
    tell(400, 20_000, 2)
    assert screen.lines[-1] == "[######..................] 15 of 60 s, 400 schedules, 1,000 steps/s, 2 found"


def test_a_proof_shows_which_step_it_is_at() -> None:
    screen: Any = Screen(2.0)
    tell = StepsPace(screen, 4)
    for what in ("one", "two", "three"):
        tell(what)
    assert screen.lines[-1] == "[############............] 2 of 4, 1.0/s: three"


def test_a_proof_has_as_many_steps_as_it_says() -> None:
    begun: list[str] = []
    prove(FAULTS["F22790d"], begun.append)
    assert len(begun) == steps_of(FAULTS["F22790d"])


@pytest.mark.slow
def test_the_whole_proof_has_as_many_steps_as_it_says() -> None:
    begun: list[str] = []
    prove(progress=begun.append)
    assert len(begun) == steps_of()
