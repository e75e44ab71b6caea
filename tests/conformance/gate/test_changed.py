"""Which actions a change is about, by a git repository that holds the rules and changes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kvproof.conformance.errors import UserError
from kvproof.conformance.gate import changed
from kvproof.conformance.gate.changed import changed_since, every_action


def git(*arguments: str, cwd: Path) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *named, *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture()
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which the rules of this kvproof are what was there before; those of today stand in the same files."""
    rules = tmp_path / "spec"
    shutil.copytree(changed.RULES, rules, ignore=shutil.ignore_patterns("__pycache__"))
    git("init", "-q", ".", cwd=tmp_path)
    git("add", "-A", cwd=tmp_path)
    git("commit", "-qm", "as they are", cwd=tmp_path)
    return rules


def edited(base: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str) -> tuple[str, ...]:
    """What `changed_since` says once a text of a file was replaced, in the code that is running."""
    path = base / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    original = changed._source_now
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    # The functions of this process stand where they were installed; their text is read from the repository.
    monkeypatch.setattr(changed, "_git", _git_in(base))
    monkeypatch.setattr(
        changed,
        "_source_now",
        lambda name: (base / name).read_text(encoding="utf-8") if (base / name).is_file() else "",
    )
    changed._named_in.cache_clear()
    try:
        return changed_since("HEAD")
    finally:
        changed._named_in.cache_clear()
        monkeypatch.setattr(changed, "_source_now", original)


def _git_in(base: Path) -> object:
    original = changed._git

    def git_there(*arguments: str, **options: object) -> str:
        rules, changed.RULES = changed.RULES, base
        try:
            return original(*arguments, **options)  # type: ignore[arg-type]
        finally:
            changed.RULES = rules

    return git_there


def test_a_comment_is_no_change(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert edited(base, monkeypatch, "actions/finish.py", "HAS_GENERATED =", "# a comment\nHAS_GENERATED =") == ()


def test_a_docstring_is_no_change(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        edited(base, monkeypatch, "actions/finish.py", "C once all results are in", "C when all results are in") == ()
    )


def test_a_rule_is_the_change_of_its_action(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (base / "actions" / "session.py").read_text()
    start = text.index("def refuse(")
    first = text.index("    return ", start)
    old = text[start:first]
    found = edited(base, monkeypatch, "actions/session.py", old, old + "    s = s\n")
    assert found and set(found) < set(every_action())
    assert "refuse" in found


def test_a_helper_is_the_change_of_all_that_use_it(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (base / "actions" / "prefill.py").read_text()
    first = text.index("    return ", text.index("def match_key_len("))
    end = text.index("\n", first)
    old = text[first:end]
    assert text.count(old) == 1
    found = edited(base, monkeypatch, "actions/prefill.py", old, old.replace("return ", "return 0 + "))
    assert "match_slot" in found and "close" not in found


def test_the_row_above_a_rule_is_the_change_of_its_action(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = edited(base, monkeypatch, "actions/session.py", '"open", when', '"match", when')
    assert found == ("open",)


def test_a_fault_is_the_change_of_the_action_that_it_deviates(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert edited(base, monkeypatch, "faults/window.py", '"F22900"', '"F22901"') == ("finish",)


@pytest.mark.parametrize("file", ["effects.py", "domain.py", "invariants.py", "state.py", "machine.py"])
def test_what_everything_rests_on_is_the_change_of_all(base: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    assert edited(base, monkeypatch, file, "from __future__", "NEW = 1\nfrom __future__") == every_action()


def test_what_nobody_reaches_by_name_is_the_change_of_all(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = edited(base, monkeypatch, "tree.py", "INVARIANTS", "INVARIANTS_OF_A_NODE")
    assert found == every_action()


def test_a_revision_that_is_none_is_said(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed, "RULES", base)
    with pytest.raises(UserError, match="fetch-depth: 0"):
        changed_since("no-such-branch")
    with pytest.raises(UserError, match="git cannot say"):
        changed_since("--output=/tmp/x")


def test_rules_that_are_in_no_repository_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed, "RULES", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UserError, match="name what changed with --action"):
        changed_since("HEAD")
