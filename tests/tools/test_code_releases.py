"""The page of the releases: a mark for each claim, totals, and what differs, with how it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_releases import Release, page, release_in
from repository import ROOT
from small_sglang import write_sglang

from kvproof.conformance.code_proof.findings import Call, Finding, Shown
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED

REACHED = Shown("C is as the rule has it", "1", "2", {"P": 2}, (), (Call("open", {}), Call("create", {})))
NOT_REACHED = Shown("E is as the rule has it", "1", "2", {"P": 2}, ())


def finding(rule: str, verdict: str, *differences: Shown, instead: str | None = None) -> Finding:
    return Finding(
        f"Cache.{rule}", rule, "s.py", 7, verdict, instead, differences, paths=3, understood=2, ran=("s.py:f",)
    )


OLD = Release(
    "0.5.1", [finding("finish", DIFFERS, REACHED, NOT_REACHED, instead="F1"), finding("abort", NOT_UNDERSTOOD)]
)
NEW = Release("0.5.2", [finding("finish", PROVED), finding("abort", PROVED), finding("late", ABSENT)])


def test_each_claim_has_a_mark_of_each_release() -> None:
    lines = page([OLD, NEW]).splitlines()
    assert "| `finish` | ✗ F1 | ✓ |" in lines
    assert "| `abort` | ? | ✓ |" in lines
    assert "| `late` |  |  |" in lines
    assert "| proved | 0 | 2 |" in lines
    assert "| paths understood | 4 of 6 | 6 of 9 |" in lines


def test_what_differs_is_told_with_how_it_is_shown() -> None:
    text = page([OLD, NEW])
    assert "`finish` (s.py:7): differs: exactly F1" in text
    assert "C is as the rule has it (a run of 2 actions, P = 2)" in text
    assert "E is as the rule has it (not reachable in small instances)" in text
    assert text.rstrip().endswith("### 0.5.2\n\nNothing.")


def test_a_folder_is_proved_by_the_rules_of_its_release(tmp_path: Path) -> None:
    release = release_in(
        str(write_sglang(tmp_path, "(target + page_size - 1) // page_size", "target // page_size")), None
    )
    assert release.count(DIFFERS) > 0 and release.functions > 5
    assert "✗" in page([release])


@pytest.mark.sglang
def test_the_page_says_of_a_real_release_what_the_command_says() -> None:
    release = release_in(str(ROOT / ".venv-sglang" / "site" / "0.5.11"), None)
    lines = (ROOT / "docs" / "code_releases.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    column = rows[0].index("0.5.11")
    marks = {row[0].strip("`"): row[column].split(" ")[0] for row in rows if row[0].startswith("`")}

    assert {f.rule: "✓" if f.verdict == PROVED else "✗" for f in release.findings} == {
        rule: mark for rule, mark in marks.items() if mark
    }
