"""Answers of earlier runs: found again for the same text, the same rules and the same kvproof, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproof.conformance.code_proof import kept_answers
from kvproof.conformance.code_proof.findings import Finding
from kvproof.conformance.code_proof.kept_answers import MOST_LIKE, Answer, KeptAnswers
from kvproof.model.cache import Store
from kvproof.model.code.claims import PROVED
from kvproof.model.code.rests_on import read_of
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.profiles import PROFILES


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kept")


def tree(root: Path, **modules: str) -> Sources:
    root.mkdir(exist_ok=True)
    for name, text in modules.items():
        (root / f"{name}.py").write_text(text)
    sources = Sources(Folder(root))
    for name in ("one", "two", "none"):
        sources.module(name)
    return sources


def keep(store: Store, sources: Sources, line: int = 1) -> None:
    KeptAnswers(store, sources, None, True).keep(
        "finish", Answer(Finding("f", "finish", "one.py", line, PROVED), read_of(sources))
    )


def line_found(store: Store, sources: Sources) -> int | None:
    found = KeptAnswers(store, sources, None, True).of_this_tree("finish")
    return found.line if found is not None else None


def test_an_answer_is_found_for_the_text_that_it_was_read_from(store: Store, tmp_path: Path) -> None:
    keep(store, tree(tmp_path / "a", one="x = 1", two="y = 1"), 1)
    keep(store, tree(tmp_path / "b", one="x = 2", two="y = 1"), 2)
    assert line_found(store, tree(tmp_path / "c", one="x = 1", two="y = 1")) == 1
    assert line_found(store, tree(tmp_path / "d", one="x = 2", two="y = 1")) == 2
    assert line_found(store, tree(tmp_path / "e", one="x = 2", two="y = 2")) is None
    assert line_found(store, tree(tmp_path / "f", one="x = 2")) is None
    assert line_found(store, tree(tmp_path / "g", one="x = 1", two="y = 1", none="z = 1")) is None


def test_of_other_trees_those_with_the_fewest_other_modules_come_first(store: Store, tmp_path: Path) -> None:
    for line, (one, two) in enumerate([("x = 1", "y = 1"), ("x = 2", "y = 1"), ("x = 3", "y = 3"), ("x = 4", "y = 4")]):
        keep(store, tree(tmp_path / str(line), one=one, two=two), line)
    kept = KeptAnswers(store, tree(tmp_path / "now", one="x = 3", two="y = 5"), None, True)
    found = kept.of_trees_like_it("finish")
    assert found[0].finding.line == 2 and len(found) == MOST_LIKE


def test_no_answer_is_found_by_another_kvproof_or_of_other_rules(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tree(tmp_path / "code", one="x = 1", two="y = 1")
    keep(store, sources)
    profile = PROFILES["sglang-0.5.17"]
    assert KeptAnswers(store, sources, None, True).of_this_tree("finish") is not None
    assert KeptAnswers(store, sources, None, False).of_this_tree("finish") is None
    assert KeptAnswers(store, sources, profile, True).of_this_tree("finish") is None
    assert KeptAnswers(None, sources, None, True).of_this_tree("finish") is None
    own = kept_answers.own_sources()
    monkeypatch.setattr(kept_answers, "own_sources", lambda: f"{own} and a line more")
    assert KeptAnswers(store, sources, None, True).of_this_tree("finish") is None


def test_so_many_trees_are_kept_and_no_file_more(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "MOST_TREES", 2)
    trees = [tree(tmp_path / str(number), one=f"x = {number}", two="y = 1") for number in range(4)]
    for sources in (*trees, trees[2]):
        keep(store, sources)
    assert [line_found(store, sources) for sources in trees] == [None, None, 1, 1]
    assert len(list(store.folder.rglob("*.json"))) == 3


def test_what_is_no_answer_is_as_good_as_none(store: Store, tmp_path: Path) -> None:
    sources = tree(tmp_path / "code", one="x = 1", two="y = 1")
    keep(store, sources)
    for path in store.folder.rglob("*.json"):
        store.write(path.stem, [{"a": 1}])
    assert line_found(store, sources) is None
    keep(store, sources)
    assert line_found(store, sources) == 1
