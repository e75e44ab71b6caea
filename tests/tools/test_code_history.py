"""The history of a repository by proof: each commit with what it did to the functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_history import changes, page
from small_sglang import commit_sglang

from kvproof.conformance.code_proof import proving
from kvproof.conformance.code_proof.findings import Finding, Shown
from kvproof.model.cache import Store
from kvproof.model.code.claims import DIFFERS, PROVED
from kvproof.model.code.source import Sources

RIGHT = "(target + page_size - 1) // page_size"
DIFFERENCE = Shown("C is as the rule has it", "1", "2", {"P": 1}, ())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A right cache, a wrong one, and the fix. The proof is replaced by a look at the one line that changes."""

    def find(sources: Sources, profile: object, name: str, runs: object) -> Finding:
        module = sources.module("sglang.srt.session.streaming_session")
        is_right = module is not None and RIGHT in module.text
        verdict, differences = (PROVED, ()) if is_right or name != "finish" else (DIFFERS, (DIFFERENCE,))
        return Finding(f"StreamingSession.{name}", name, "s.py", 1, verdict, None, differences)

    monkeypatch.setattr(proving, "find", find)
    return commit_sglang(tmp_path / "repository", ("", ""), (RIGHT, "target // page_size"), ("", ""))


def test_each_commit_is_told_by_what_it_did(repository: Path, tmp_path: Path) -> None:
    found = list(changes(repository, "2000-01-01", Store(tmp_path / "kept")))
    finish = [next(turned for turned in change.verdicts() if turned.rule == "finish") for change in found]

    assert [(turned.before, turned.after) for turned in finish] == [
        ("absent", PROVED),
        (PROVED, DIFFERS),
        (DIFFERS, PROVED),
    ]
    assert finish[2].gone == (DIFFERENCE.sentence,)


def test_the_page_begins_with_what_would_have_been_stopped(repository: Path, tmp_path: Path) -> None:
    text = page(list(changes(repository, "2000-01-01", Store(tmp_path / "kept"))), [])
    stopped = text.partition("## Commits after which a proved function differs")[2].partition("\n## ")[0]

    assert [line.split("|")[4].strip() for line in stopped.splitlines() if line.startswith("| ")][2:] == ["`finish`"]
    assert "`finish` | differs → proved" in text.replace("|  ", "| ")
