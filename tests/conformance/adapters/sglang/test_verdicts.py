"""Real SGLang releases judged by the specification: what conforms, what is flagged, and by which name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_process import EACH_RELEASE, LATER, OWN_CHECKS_TOOL, PAGE_SIZES, RELEASES, Trace, each_on, run_with_sglang
from sglang_verdicts import BY_PROFILE, OWN_CHECKS, PAGE, VERDICTS, table, verdict_of
from verdict_page import Verdicts

from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.replay.replay import VIOLATES, replay
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE

TraceOf = Callable[[str, str, int], Trace]
OLD, NEW = RELEASES

# Of every scenario on every release, written by sglang_verdicts.py; docs/sglang.md says what is behind each.
EXPECTED: Verdicts = json.loads(VERDICTS.read_text())
BY_ITS_OWN_RULES: Verdicts = json.loads(BY_PROFILE.read_text())
FINDINGS = PAGE.path.parent / "findings"
# What is wrong by the release's own rules too: each scenario, and the page that says what it is.
FOUND = {
    "abort-queued": "queued_abort_keeps_the_session_busy",
    "abort-queued-close": "queued_abort_keeps_the_session_busy",
    "abort-retracted": "retract_ends_the_turn",
    "abort-then-retract": "retract_ends_the_turn",
    "busy": "refused_turn_frees_the_session",
    "busy-at-once": "refused_turn_on_a_new_session",
    "busy-twice": "refused_turn_frees_the_session",
    "full-of-rows": "full_of_rows",
    "full-of-sessions": "full_of_sessions",
    "given-up": "given_up",
    "matrix-speculation": "last_token_without_kv",
    "matrix-speculation-chunk-cache": "last_token_without_kv",
    "matrix-speculation-window": "last_token_without_kv",
    "retract-twice": "retract_ends_the_turn",
}


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release, scenario", each_on(EACH_RELEASE, SCENARIOS))
def test_each_scenario_has_its_verdict(trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
    trace = trace_of(release, scenario, page_size).path
    assert verdict_of(trace) == EXPECTED[release][scenario][str(page_size)]
    if release in BY_ITS_OWN_RULES:
        assert verdict_of(trace, OF_THE_TRACE) == BY_ITS_OWN_RULES[release][scenario][str(page_size)]


def test_what_a_release_does_is_stated_by_its_profile_or_is_a_finding() -> None:
    assert list(BY_ITS_OWN_RULES) == [OLD, NEW, *LATER]
    assert set(FOUND) == {
        scenario
        for release in (NEW, *LATER)
        for scenario, by_size in BY_ITS_OWN_RULES[release].items()
        if any(words.startswith("violates") for words in by_size.values())
    }
    for finding in FOUND.values():
        assert (FINDINGS / f"{finding}.md").exists()


def test_no_other_design_is_taken_for_a_fault() -> None:
    """Where a release conforms by its own rules, what the model's find is explained by no fault of the catalogue."""
    judged = 0
    for release, of_release in BY_ITS_OWN_RULES.items():
        for scenario, by_size in of_release.items():
            for page_size, words in by_size.items():
                by_the_model = EXPECTED[release][scenario][page_size]
                if words.startswith("conforms") and by_the_model.startswith("violates: "):
                    assert by_the_model.removeprefix("violates: ") in ("abort", "check", "insert", "window")
                    judged += 1
    assert judged >= 40


def test_the_table_of_the_page_is_what_was_found() -> None:
    assert PAGE.read() == table(EXPECTED, BY_ITS_OWN_RULES, json.loads(OWN_CHECKS.read_text()))


@pytest.mark.sglang_full
@pytest.mark.parametrize("release", [*RELEASES, *LATER])
def test_own_checks_of_a_release_notice_what_is_known(release: str, tmp_path: Path) -> None:
    run_with_sglang(release, OWN_CHECKS_TOOL, str(tmp_path))
    assert json.loads((tmp_path / f"{release}.json").read_text()) == json.loads(OWN_CHECKS.read_text())[release]


def test_a_double_free_that_the_newest_release_does_not_notice_is_found() -> None:
    # At page size 4 its busy check stumbles over it; that check is off unless a server is asked to make it.
    assert json.loads(OWN_CHECKS.read_text())[LATER[-1]]["busy-twice"] == {"1": "", "4": "busy check"}
    assert EXPECTED[LATER[-1]]["busy-twice"] == {"1": "violates: S0511c", "4": "violates: S0511c"}


def test_expected_verdicts_say_of_well_behaved_clients_that_they_are_served_by_the_rules() -> None:
    """What is expected is no list of whatever was seen: on 0.5.11 and later nothing but the named differences is flagged."""
    well_behaved = ("basic", "many-sessions", "logprob", "pressure", "too-long", "close-running")
    for release in (NEW, *LATER):
        verdicts = {words for scenario in well_behaved for words in EXPECTED[release][scenario].values()}
        assert all(words.startswith("conforms") for words in verdicts), (release, verdicts)
    assert EXPECTED[OLD]["retract"]["4"] == "violates: F22862a"
    assert EXPECTED[NEW]["retract"]["4"] == "conforms, S0511a followed"
    for matrix in ("full", "overlap", "window", "window-overlap", "mixed-overlap"):
        assert EXPECTED[NEW][f"matrix-{matrix}"]["4"] == "conforms, S0511a followed"


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_strict_flags_what_is_known_of_the_release(trace_of: TraceOf, page_size: int) -> None:
    report = replay(trace_of(NEW, "retract", page_size).path, strict=True)
    assert report.verdict == VIOLATES
    assert [f.id for f in report.first.explained_by] == ["S0511a"]


@pytest.mark.sglang
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_cannot_show_is_said_with_the_verdict(trace_of: TraceOf, release: str) -> None:
    report = replay(trace_of(release, "basic", 4).path)
    assert bool(report.gaps) == (release == OLD)
