"""Targets by name: what the factory of a maintainer may leave out."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.targets import target_named

PARTS: dict[str, Any] = {"name": "by_hand:factory", "settings": {}, "seeds": (), "acts": ("step",), "start": None}


def made_of(monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]) -> Any:
    module: Any = ModuleType("by_hand")
    module.factory = lambda: SimpleNamespace(**parts)
    monkeypatch.setitem(sys.modules, "by_hand", module)
    return target_named("by_hand:factory")


def test_a_target_that_does_not_inherit_has_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    target = made_of(monkeypatch, PARTS)
    assert target.profile is None and target.sessions_may_fill_it is False


def test_what_a_target_says_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    target = made_of(monkeypatch, PARTS | {"profile": "auto", "sessions_may_fill_it": True})
    assert target.profile == "auto" and target.sessions_may_fill_it is True


def test_what_a_target_must_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="has no seeds, start"):
        made_of(monkeypatch, {name: PARTS[name] for name in ("name", "settings", "acts")})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which a script does not have on its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    return tmp_path


def test_a_module_is_found_in_the_current_folder(here: Path) -> None:
    body = f"from types import SimpleNamespace\ndef factory(): return SimpleNamespace(**{PARTS!r})\n"
    (here / "found_here.py").write_text(body)
    assert target_named("found_here:factory").name == "by_hand:factory"


def test_a_module_that_is_nowhere_is_answered_with_where_it_was_looked_for(here: Path) -> None:
    with pytest.raises(
        UserError, match=r"no module 'nowhere' in the current folder \(.*\), .* PYTHONPATH .* installed in"
    ):
        target_named("nowhere.below:factory")


def test_what_a_module_itself_lacks_is_not_mistaken_for_it(here: Path) -> None:
    (here / "lacks_a_package.py").write_text("import no_such_package\n")
    with pytest.raises(UserError, match="No module named 'no_such_package'"):
        target_named("lacks_a_package:factory")
