"""Targets by name: what the factory of a maintainer may leave out."""

import sys
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
