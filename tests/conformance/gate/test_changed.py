"""Which actions a change is about, by a git repository that holds the rules and changes of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvproof.conformance.errors import UserError
from kvproof.conformance.gate import changed
from kvproof.conformance.gate.changed import changed_since, every_action


def git(*arguments: str, cwd: Path) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *named, *arguments], cwd=cwd, check=True, capture_output=True)


Edited = Callable[[str, str, str], tuple[str, ...]]


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edited]:
    """Replaces a text of a file; what `changed_since` says then. The repository holds the rules as they run."""
    rules = tmp_path / "spec"
    shutil.copytree(changed.RULES, rules, ignore=shutil.ignore_patterns("__pycache__"))
    for arguments in (("init", "-q", "."), ("add", "-A"), ("commit", "-qm", "as they are")):
        git(*arguments, cwd=tmp_path)
    monkeypatch.setattr(changed, "RULES", rules)

    def edit(file: str, old: str, new: str) -> tuple[str, ...]:
        text = (rules / file).read_text(encoding="utf-8")
        assert old in text
        (rules / file).write_text(text.replace(old, new, 1), encoding="utf-8")
        changed._named_in.cache_clear()
        return changed_since("HEAD")

    yield edit
    changed._named_in.cache_clear()


ALL = every_action()


@pytest.mark.parametrize(
    ("file", "old", "new", "concerned"),
    [
        pytest.param("actions/finish.py", "KEEPS_SOME =", "# new\nKEEPS_SOME =", (), id="a comment"),
        pytest.param("actions/finish.py", "C once all results are in", "C when all are in", (), id="a docstring"),
        pytest.param("actions/session.py", '"open", when', '"match", when', ("open",), id="the row above a rule"),
        pytest.param("faults/window.py", '"F22900"', '"F22901"', ("finish",), id="a fault"),
        pytest.param("tree.py", "INVARIANTS", "INVARIANTS_OF_A_NODE", ALL, id="what nobody reaches by name"),
        *(
            pytest.param(f"{name}.py", "from __future__", "NEW = 1\nfrom __future__", ALL, id=f"all rest on {name}")
            for name in ("effects", "domain", "invariants", "state", "machine")
        ),
    ],
)
def test_a_change_is_one_of_the_actions_that_rest_on_it(
    edited: Edited, file: str, old: str, new: str, concerned: tuple[str, ...]
) -> None:
    assert edited(file, old, new) == concerned


def returning(file: str, function: str) -> str:
    """A function from its name to the end of the line that returns."""
    text = (changed.RULES / file).read_text(encoding="utf-8")
    start = text.index(f"def {function}(")
    return text[start : text.index("\n", text.index("    return ", start))]


def test_a_rule_is_the_change_of_its_action(edited: Edited) -> None:
    old = returning("actions/session.py", "refuse")
    found = edited("actions/session.py", old, old.replace("    return ", "    s = s\n    return "))
    assert set(found) < set(ALL) and "refuse" in found


def test_a_helper_is_the_change_of_all_that_use_it(edited: Edited) -> None:
    old = returning("actions/prefill.py", "match_key_len")
    found = edited("actions/prefill.py", old, old.replace("return ", "return 0 + "))
    assert "match_slot" in found and "close" not in found


def test_a_revision_that_is_none_is_said(edited: Edited) -> None:
    with pytest.raises(UserError, match="fetch-depth: 0"):
        changed_since("no-such-branch")
    with pytest.raises(UserError, match="git cannot say"):
        changed_since("--output=/tmp/x")


def test_rules_that_are_in_no_repository_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed, "RULES", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UserError, match="name what changed with --action"):
        changed_since("HEAD")
