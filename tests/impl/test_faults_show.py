"""Each fault of the table shows in the replay of its trace.

And where no fault is on, every scenario conforms at every page size.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import require_exit, run

from kvproof.impl.faults import FAULTS
from kvproof.impl.scenarios import SCENARIOS

NEEDS_PAGES = ("F22862b", "F994a")
"""What starts inside a page needs a page with an inside."""

SHOWS_IN = {
    "F12224": "in-flight",
    "F17850": "chunks-in-flight",
    "F20070": "basic",
    "F20476": "chunked",
    "F20557": "logprob",
    "F21875a": "close-running",
    "F21875b": "too-long",
    "F21875c": "rounds",
    "F22213": "busy-check",
    "F22651": "rounds",
    "F22735": "deeper-match",
    "F22753": "chunked-check",
    "F22790a": "abort-nth",
    "F22790b": "abort-first",
    "F22790c": "too-long",
    "F22790d": "abort-nth",
    "F22790e": "busy",
    "F22862a": "retract",
    "F22862b": "retract",
    "F22897": "rounds",
    "F22900": "window-rounds",
    "F994a": "duplicates",
    "F994b": "window-in-flight",
    "F994c": "forced-retracts",
    "F994d": "chunks-in-flight",
    "F994e": "forced-retracts",
    "S0511a": "retract",
    "S0511b": "abort-queued",
}


def replayed(tmp_path: Path, scenario: str, page_size: int, *options: str) -> int:
    """Record a scenario and replay the trace, as a user does; the exit code of the replay."""
    trace, asked = tmp_path / "t.jsonl", ("--scenario", scenario, "--page-size", page_size, *options)
    require_exit(0, "record", "--out", trace, *asked, "--set", "forward=none", "--quiet")
    return run("replay", trace).exit_code


def test_the_table_names_every_fault_and_scenarios_that_expose_it() -> None:
    assert set(SHOWS_IN) == set(FAULTS)
    assert all(fault in SCENARIOS[scenario].exposes for fault, scenario in SHOWS_IN.items())


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_with_the_fault_on_the_replay_finds_a_violation(fault: str, page_size: int, tmp_path: Path) -> None:
    if page_size == 1 and fault in NEEDS_PAGES:
        assert replayed(tmp_path, SHOWS_IN[fault], 1, "--fault", fault) == 0
        pytest.skip("needs pages of more than one token")
    assert replayed(tmp_path, SHOWS_IN[fault], page_size, "--fault", fault) == 1


@pytest.mark.parametrize("page_size", [1, 4, 16, 256])
@pytest.mark.parametrize("scenario", sorted({*SHOWS_IN.values()}))
def test_without_it_the_same_scenario_conforms(scenario: str, page_size: int, tmp_path: Path) -> None:
    assert replayed(tmp_path, scenario, page_size) == 0
