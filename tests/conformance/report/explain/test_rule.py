"""What an invariant, a fault and an action are, in words and with a picture."""

from __future__ import annotations

import pytest
from command_line import refusal, run

from kvproof.conformance.report.explain.rule import rule_lines, rule_names
from kvproof.conformance.report.explain.runs import shortest_run_of_fault
from kvproof.model.explore import counterexample
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES, every_invariant

OF_A_FAULT = (
    "the trim leaves the window cursor above",
    "bug that was fixed",
    "sglang #22900",
    "I9 the window cursor",
    "7 evict_window(pre_len=4)      ××██  committed 4, allocated 4, protected 0, evicted 2",
    "8 finish(finished_len=0)       ××    committed 1, allocated 1, protected 0, evicted 2 ✗",
    "by the rule                  ×     committed 1, allocated 1, protected 0, evicted 1",
    "finish: slot_swa_evicted_seqlen is 2 after it; the rule says 1",
    "kvproof prove --fault F22900",
)
OF_AN_INVARIANT = (
    "window cursor, swa_evicted_seqlen, is at most",
    "why",
    "sglang #22900",
    "F22900 (finish)",
    "8 finish(finished_len=0)",
)
OF_AN_ACTION = ("event     match", "I4 a free starts on a page boundary", "sglang #20070, #22862", "F22862b")


@pytest.mark.parametrize(
    ("name", "parts"), [("F22900", OF_A_FAULT), ("I9", OF_AN_INVARIANT), ("match_slot", OF_AN_ACTION)]
)
def test_a_name_is_explained_with_its_source_what_belongs_to_it_and_its_picture(
    name: str, parts: tuple[str, ...]
) -> None:
    result = run("explain", name)
    assert result.exit_code == 0
    for part in parts:
        assert part in result.stdout


def test_names_may_be_typed_in_any_case() -> None:
    assert run("explain", "i9").stdout == run("explain", "I9").stdout


@pytest.mark.parametrize(("typed", "meant"), [("F22862", "F22862b"), ("I99", "I9"), ("match_slots", "match_slot")])
def test_an_unknown_name_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    message = refusal("explain", typed)
    assert "unknown trace, invariant, fault or action" in message and f"did you mean {meant}" in message


def test_a_page_is_written_of_traces_only() -> None:
    assert "for traces" in refusal("explain", "I9", "--html", "out.html")


def test_no_name_is_of_two_kinds() -> None:
    assert len(set(rule_names())) == len(rule_names())
    assert len({name.casefold() for name in rule_names()}) == len(rule_names())


@pytest.mark.parametrize("name", [*every_invariant(), "X1", *(a for m in MACHINES for a in m.actions)])
def test_every_invariant_and_action_is_explained_and_has_its_first_line(name: str) -> None:
    first, *others = rule_lines(name)
    assert first.plain.startswith(f"{name}  ") and len(others) >= 2


@pytest.mark.parametrize("name", ["F22862b", "F22735", "M19", "F994e"])
def test_the_remembered_run_is_the_one_that_the_search_finds(name: str) -> None:
    fault = FAULTS[name]
    for _ in ("searched", "remembered"):
        assert shortest_run_of_fault(fault) == counterexample(fault)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_can_be_explained(name: str) -> None:
    said = "\n".join(line.plain for line in rule_lines(name))
    assert "the shortest run" in said and "✗" in said
    # Of M18 only a promise is another one: what its step leaves and moves is what the rule says.
    assert "the rule says" in said or "; the rule " in said or "the rule forbids it" in said or name == "M18"


def test_a_rule_that_was_moved_is_shown_where_it_deviates() -> None:
    """F22651 claims nothing when a round is prepared; what breaks is the finish after it."""
    said = run("explain", "F22651").stdout.splitlines()
    at = next(number for number, line in enumerate(said) if "6 prepare_round" in line)
    assert "█░░" in said[at] and "by the rule" in said[at + 1] and "██░" in said[at + 1]
    assert "7 finish" in said[at + 2] and said[at + 2].endswith("✗")
