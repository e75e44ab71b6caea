"""Fault-free, the reference implementation conforms; with a fault on, replay flags the trace and names that fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.replay import CONFORMS, VIOLATES, replay
from kvproof.impl.faults import FAULTS as IMPLEMENTED
from kvproof.impl.scenarios import SCENARIOS
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER

PAGE_SIZES = (1, 4, 16, 256)
BUGS = [f for f in IMPLEMENTED if f in FAULTS and FAULTS[f].machine is LEDGER]
# Rules of the tree and of progress are no event's: what they did is seen, and flagged, where it shows.
SEEN_ELSEWHERE = [f for f in IMPLEMENTED if f in FAULTS and FAULTS[f].machine is not LEDGER]
# A free that starts inside a page needs a page with an inside.
NEEDS_PAGES = {"F22862b", "F994a"}


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fault_free_implementation_conforms(scenario: str, page_size: int, tmp_path: Path) -> None:
    result = record_scenario(scenario, tmp_path / "t.jsonl", page_size=page_size, settings={"forward": "none"})
    report = replay(result.path)
    assert report.verdict == CONFORMS, report.findings
    assert report.events == result.events


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("fault", BUGS)
def test_each_fault_is_flagged_and_named(fault: str, page_size: int, tmp_path: Path) -> None:
    """In at least one scenario; and wherever a trace is flagged, it was the fault: the right rules never differ."""
    if page_size == 1 and fault in NEEDS_PAGES:
        pytest.skip("needs pages of more than one token")
    named = set()
    for scenario, entry in SCENARIOS.items():
        if fault not in entry.exposes:
            continue
        path = tmp_path / f"{scenario}.jsonl"
        record_scenario(scenario, path, page_size=page_size, faults=(fault,), settings={"forward": "none"})
        report = replay(path)
        if report.verdict == VIOLATES:
            assert report.first is not None
            named.update(f.id for f in report.first.explained_by)
            assert report.first.event.action == ACTIONS[FAULTS[fault].action].event
    assert fault in named


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize(("fault", "event"), [("F22735", "evict"), ("F994e", "retract")])
def test_what_no_event_names_is_flagged_where_it_shows(fault: str, event: str, page_size: int, tmp_path: Path) -> None:
    """A lock that another node lost lets pages be evicted under a row; a request is retracted before it has generated."""
    assert fault in SEEN_ELSEWHERE and len(SEEN_ELSEWHERE) == 2
    [scenario] = [name for name, entry in SCENARIOS.items() if fault in entry.exposes]
    path = tmp_path / "t.jsonl"
    record_scenario(scenario, path, page_size=page_size, faults=(fault,), settings={"forward": "none"})
    report = replay(path)
    assert report.verdict == VIOLATES
    assert report.first is not None and report.first.event.action == event


def test_the_diagnosis_does_not_read_the_faults_that_the_header_admits(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record_scenario("retract", path, page_size=4, faults=("F22862b",), settings={"forward": "none"})
    lines = path.read_text().splitlines()
    header = json.loads(lines[0])
    assert header["extra"]["faults"] == ["F22862b"]
    header["extra"] = {}
    path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    finding = replay(path).first
    assert finding is not None
    assert [f.id for f in finding.explained_by] == ["F22862b"]


def test_all_actions_that_the_reference_can_take_happen_in_the_scenarios(tmp_path: Path) -> None:
    """Its refused turns never come back; rounds of speculation v1 are in the matrix of tests/impl."""
    seen = set()
    for scenario in SCENARIOS:
        record_scenario(scenario, tmp_path / "t.jsonl", page_size=4, settings={"forward": "none"})
        seen.update(replay(tmp_path / "t.jsonl").actions)
    assert set(ACTIONS) - seen == {"pass_by", "verify"}
