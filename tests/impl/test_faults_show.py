"""Each fault shows in the replay of every scenario that exposes it.

And where no fault is on, each of these scenarios conforms at every page size.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import require_exit, run

from kvproof.impl.faults import FAULTS
from kvproof.impl.scenarios import SCENARIOS

EXPOSED = [(name, fault) for name, scenario in SCENARIOS.items() for fault in scenario.exposes]
NEEDS_PAGES = [*((name, "F22862b") for name in ("retract", "storm")), ("storm", "F20557"), ("duplicates", "F994a")]
"""What starts inside a page needs a page with an inside."""


def replayed(tmp_path: Path, scenario: str, page_size: int, *options: str) -> int:
    """Record a scenario and replay the trace, as a user does; the exit code of the replay."""
    trace, asked = tmp_path / "t.jsonl", ("--scenario", scenario, "--page-size", page_size, *options)
    require_exit(0, "record", "--out", trace, *asked, "--set", "forward=none", "--quiet")
    return run("replay", trace).exit_code


def test_every_fault_is_exposed_by_a_scenario() -> None:
    assert {fault for _, fault in EXPOSED} == set(FAULTS)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize(("scenario", "fault"), EXPOSED)
def test_with_the_fault_on_the_replay_finds_a_violation(
    scenario: str, fault: str, page_size: int, tmp_path: Path
) -> None:
    is_shown = page_size > 1 or (scenario, fault) not in NEEDS_PAGES
    assert replayed(tmp_path, scenario, page_size, "--fault", fault) == is_shown


@pytest.mark.parametrize("page_size", [1, 4, 16, 256])
@pytest.mark.parametrize("scenario", sorted({name for name, _ in EXPOSED}))
def test_without_it_the_same_scenario_conforms(scenario: str, page_size: int, tmp_path: Path) -> None:
    assert replayed(tmp_path, scenario, page_size) == 0
