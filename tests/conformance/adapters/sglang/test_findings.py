"""The scripts of docs/findings find on each release what the pages say, and their table of releases is what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixed_sglang import ALL, RELEASE, fixable, fixed, verdicts_on
from run_findings import HELPERS, answers_on
from sglang_process import LATER, RECORD_SCENARIOS, called, often_and_in_full, run_on, site_of
from sglang_verdicts import verdict_of
from soak.fixed_release import VARIANT

from kvproof.model.code.claims import DIFFERS, PROVED

FOUND = Path(__file__).with_name("findings.json")
ROOT = Path(__file__).resolve().parents[4]
PAGES = ROOT / "docs" / "findings"
MARK = "<!-- releases: written by tests/conformance/adapters/sglang/test_findings.py -->"
# There is nothing to look at in 0.5.10.post1: it has no in-flight marker.
QUICK = ("0.5.11", LATER[-1])

Found = dict[str, dict[str, dict[str, bool]]]
"""release -> script -> what it looks for: whether it is there"""


def table(found: Found) -> str:
    """One row for each thing that a script looks for."""
    releases = list(found)
    lines = [f"| finding | what is there | {' | '.join(releases)} |", f"| --- | --- |{' --- |' * len(releases)}"]
    for script in sorted({script for release in releases for script in found[release]}):
        for what in found[releases[-1]][script]:
            cells = ["yes" if found[release][script][what] else "no" for release in releases]
            lines.append(f"| [{script.replace('_', ' ')}]({script}.md) | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def known() -> Found:
    found: Any = json.loads(FOUND.read_text())
    return dict(found)


def test_each_script_has_a_page_and_the_table_is_what_was_found() -> None:
    scripts = {path.stem for path in PAGES.glob("*.py")} - set(HELPERS)
    assert scripts == {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert all(set(of_release) == scripts for of_release in known().values())
    text = (PAGES / "README.md").read_text()
    assert text.partition(MARK)[2].strip() == table(known())


@pytest.mark.parametrize("release", often_and_in_full(QUICK))
def test_the_scripts_find_what_is_known(release: str) -> None:
    assert called(release, "run_findings:found") == known()[release]


UNFIXED = [script for script, found in known()[RELEASE].items() if any(found.values())]
"""What is there in the newest release."""


def gone(script: str) -> dict[str, bool]:
    """All that a script looks for, as not there."""
    return dict.fromkeys(known()[RELEASE][script], False)


def test_each_finding_of_the_newest_release_has_a_fix_and_each_fix_is_of_one() -> None:
    assert LATER[-1] == RELEASE
    assert set(UNFIXED) == set(fixable())
    assert set(fixable().values()) == set(ALL)


@pytest.mark.sglang_full
def test_with_all_fixes_together_nothing_is_found() -> None:
    site_of(RELEASE)
    site = fixed(*ALL)
    assert {script: answers_on(site, script) for script in UNFIXED} == {script: gone(script) for script in UNFIXED}


PROVES = {
    "abort_in_another_namespace": {"abort_nth, another namespace"},
    "chunk_cache_ignores_the_session": {"extend, admission"},
    "given_up": {"abort_first, given up", "abort_nth, given up"},
    "own_row": {"match_slot, admission"},
    "refused_turn": {"pass_by"},
}
"""Of each fix the claims about SGLang's functions that differ before and are proved with it."""


@pytest.mark.sglang
@pytest.mark.parametrize("fix", PROVES)
def test_a_fix_is_proved(fix: str) -> None:
    site = site_of(RELEASE)
    before, after = (verdicts_on(folder, PROVES[fix]) for folder in (site, fixed(fix)))
    assert before == dict.fromkeys(PROVES[fix], DIFFERS)
    assert after == dict.fromkeys(PROVES[fix], PROVED)


@pytest.mark.sglang
def test_with_all_fixes_a_turn_ends_and_is_retracted_as_the_variant_says() -> None:
    """The variant itself is proved in tests/conformance/cli/test_variant.py."""
    names = ("finish", "retract", "finish, released", "retract, released")
    before, after = (verdicts_on(site, names, VARIANT) for site in (site_of(RELEASE), fixed(*ALL)))
    assert before == dict.fromkeys(names, DIFFERS)
    assert after == dict.fromkeys(names, PROVED)


@pytest.mark.sglang_full
def test_with_all_fixes_the_scenarios_follow_the_rules_without_any_deviation(tmp_path: Path) -> None:
    """With drafts a turn keeps one token fewer: the rule of examples/variants/keeps_what_is_verified.py, proved apart."""
    site_of(RELEASE)
    run_on(fixed(*ALL), RECORD_SCENARIOS, "sglang", str(tmp_path), "--page-size", "1", "4")
    traces = sorted((tmp_path / RELEASE).glob("*.jsonl"))
    found = {trace.stem: verdict_of(trace, f"sglang-{RELEASE}") for trace in traces}
    drafting = {name for name in found if name.startswith("matrix-speculation")}
    assert len(found) > len(drafting) > 0
    assert {name for name, verdict in found.items() if verdict != "conforms"} == drafting


@pytest.mark.sglang_full
@pytest.mark.parametrize("script", UNFIXED)
def test_each_fix_alone_is_enough(script: str) -> None:
    site_of(RELEASE)
    assert answers_on(fixed(fixable()[script]), script) == gone(script)
