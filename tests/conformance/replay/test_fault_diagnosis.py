"""Fault-free, the reference implementation conforms; with a fault on, replay flags the trace and names that fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_runs import steps_of_one_ledger
from run_traces import Records, edited, first_finding

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.replay.begin import replayer_of
from kvproof.conformance.replay.fault_diagnosis import BadEvent, catalogue
from kvproof.conformance.replay.judge import judge, parameters
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.impl.faults import FAULTS as IMPLEMENTED
from kvproof.impl.scenarios import SCENARIOS
from kvproof.model.witness import witness
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS, Fault, actions_with
from kvproof.spec.machine import TREE
from kvproof.spec.state import pristine
from kvproof.spec.trace import Event

PAGE_SIZES = (1, 4, 16, 256)
# A free that starts inside a page needs a page with an inside.
NEEDS_PAGES = {("retract", "F22862b"), ("storm", "F22862b"), ("storm", "F20557"), ("duplicates", "F994a")}


def recorded(scenario: str, path: Path, page_size: int = 4, *faults: str) -> Path:
    return Path(record_scenario(scenario, path, page_size=page_size, faults=faults, settings={"forward": "none"}).path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fault_free_implementation_conforms(scenario: str, page_size: int, path: Path) -> None:
    result = record_scenario(scenario, path, page_size=page_size, settings={"forward": "none"})
    report = replay(path)
    assert report.verdict == CONFORMS, report.findings
    assert report.events == result.events


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("fault", IMPLEMENTED)
def test_each_fault_is_flagged_and_named(fault: str, page_size: int, path: Path) -> None:
    """In every scenario that exposes it; and what is flagged was the fault: the right rules never differ."""
    scenarios = [name for name, scenario in SCENARIOS.items() if fault in scenario.exposes]
    first = {name: replay(recorded(name, path, page_size, fault)).first for name in scenarios}
    hidden = {name for name in scenarios if page_size == 1 and (name, fault) in NEEDS_PAGES}
    flagged = [finding for finding in first.values() if finding is not None]
    assert scenarios and {name for name, finding in first.items() if finding is None} == hidden
    if fault in FAULTS and flagged:
        assert {finding.event.action for finding in flagged} <= seen_at(FAULTS[fault])
        assert fault in {explained.id for finding in flagged for explained in finding.explained_by}


def seen_at(fault: Fault) -> set[str]:
    """Events that show it: those of the deviating rules. Of a lock that a node lost the counters tell, or an eviction."""
    if fault.machine is TREE:
        return {"check", "evict"}
    return {action.event for action in fault.in_traces.values()}


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_lost_lock_is_named_by_the_counters_and_again_when_its_pages_are_evicted(page_size: int, path: Path) -> None:
    findings = replay(recorded("deeper-match", path, page_size, "F22735")).findings
    assert {f.event.action: [*f.invariants] for f in findings} == {"check": ["I13"], "evict": ["I11"]}
    assert all([e.id for e in f.explained_by] == ["F22735"] for f in findings)
    assert findings[0].event.action == "check"


BEGUN = (
    ("open", {}),
    ("create", {"origin_len": 1, "too_long": False, "logprob": False}),
    ("match_tree", {"matched_len": 0}),
    ("extend", {"seq_len": 1, "last": True}),
)


@pytest.mark.parametrize(("launched", "named"), [((), ["F994e"]), (("result", "decode", "decode"), [])])
def test_a_fault_explains_only_the_guard_that_it_lifts(launched: tuple[str, ...], named: list[str], path: Path) -> None:
    """A retract without a token is F994e's; one with two results in flight is nobody's, though all values are the same."""
    between = ((name, {"tokens": 1} if name == "result" else {}) for name in launched)
    steps = steps_of_one_ledger(1, 8, *BEGUN, *between, ("retract", {}), overlap=True)
    write_witness(witness(steps, 1, 8, overlap=True), path, {})
    first = first_finding(path)
    assert first.event.action == "retract" and not first.differences
    assert "guard of retract" in first.invariants
    assert [fault.id for fault in first.explained_by] == named


@pytest.mark.parametrize(("too_long", "named"), [(False, ["F22897"]), (True, [])])
def test_a_fault_by_which_the_event_could_not_happen_explains_nothing(
    too_long: bool, named: list[str], path: Path
) -> None:
    """A slot that is one token too long is F22897's; of a turn that was refused and finishes all the same, nobody's."""
    opened, create, *begun = BEGUN
    begun = [opened, (create[0], create[1] | {"too_long": too_long}), *begun]
    last = (("result", {"tokens": 1}), ("verify", {"tokens": 2}), ("finish", {"finished_len": 1}))
    steps = steps_of_one_ledger(1, 8, *begun, *last, speculation=1, actions=actions_with(FAULTS["F22897"]))
    write_witness(witness(steps, 1, 8, speculation=1), path, {})
    first = first_finding(path)
    assert first.action == "finish" and first.differences
    assert ("guard of finish" in first.invariants) == (not named)
    assert [fault.id for fault in first.explained_by] == named


def test_a_fault_that_predicts_what_the_right_rule_predicts_explains_nothing(path: Path) -> None:
    """Of right events no fault is the cause, also where its rule does the same: none differs from what was seen."""
    reader = read_trace(recorded("retract", path))
    replayer = replayer_of(reader, strict=True)
    same: set[str] = set()
    for line, event in reader:
        if not isinstance(event, Event):
            continue
        key = f"session {event.session}"
        before = replayer.ledgers.get(key, pristine(replayer.d))
        action = replayer.oracle.applicable(event.action, before)
        if event.session is None or action is None:
            assert replayer.feed(line, event) is None
            continue
        outcome = replayer.oracle.step(action, before, parameters(event, action, before))
        right = judge(replayer.d, replayer.book, key, outcome, event)
        bad = BadEvent(replayer.oracle, replayer.book, key, before, event, right)
        same |= {fault.id for fault in catalogue(action.name) if bad.under(fault).agrees}
        assert bad.explained_by() == []
        assert all(bad.follows(fault) is None for fault in catalogue(action.name))
        assert replayer.feed(line, event) is None
    assert {"F22862b", "S0511a"} & same, "faults that do the same at some events"


@pytest.mark.parametrize("changed", [{"protected": 1}, {"protected": 1, "evictable": -1}, {"evictable": -1}])
def test_counters_that_no_fault_of_the_tree_leads_to_are_not_named(changed: dict[str, int], path: Path) -> None:
    """A lock that is taken from a node makes too few pages protected, never too many, and loses none of the tree."""

    def change(records: Records) -> None:
        terms = next(record["terms"] for record in records if record.get("terms", {}).get("evictable"))
        terms.update({name: terms[name] + by for name, by in changed.items()})

    first = first_finding(edited(recorded("deeper-match", path), change))
    assert first.event.action == "check"
    assert set(first.invariants) == {"I13" if "protected" in changed else "I2", *(["I2"] if len(changed) == 1 else [])}
    assert not first.explained_by


def test_the_diagnosis_does_not_read_the_faults_that_the_header_admits(path: Path) -> None:
    recorded("retract", path, 4, "F22862b")
    assert read_trace(path).header.extra["faults"] == ["F22862b"]
    finding = first_finding(edited(path, lambda records: records[0].update(extra={})))
    assert [f.id for f in finding.explained_by] == ["F22862b"]


def test_all_actions_that_the_reference_can_take_happen_in_the_scenarios(path: Path) -> None:
    """Its refused turns never come back; rounds of speculation v1 are in the matrix of tests/impl."""
    seen = {action for scenario in SCENARIOS for action in replay(recorded(scenario, path)).actions}
    assert set(ACTIONS) - seen == {"pass_by", "verify"}
