"""Each effect can do what it must be able to do, and a meaning that allows less is found."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.model import page_situations
from kvproof.model.page_lemmas import EFFECTS, FINITE, Universe, meaning
from kvproof.model.page_situations import SITUATIONS, impossible_situations
from kvproof.model.pages import FIRST, LAST
from kvproof.model.questions import Asker


def test_every_effect_has_situations_and_all_are_possible() -> None:
    assert set(SITUATIONS) == set(EFFECTS)
    assert list(impossible_situations(Asker())) == []


def test_an_effect_that_moves_one_page_at_most_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_page(u: Universe, effect: str) -> list[Any]:
        return [*meaning(u, effect), LAST == FIRST + 1]

    monkeypatch.setattr(page_situations, "meaning", one_page)
    found = list(impossible_situations(Asker()))
    assert "Take cannot happen: an empty row takes two pages" in found
    assert "Take cannot happen: a page is taken while the rest is someone's" not in found


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch, effect: str) -> None:
    before, after = page_situations.BEFORE, page_situations.AFTERWARDS
    windows, windows_after = page_situations.WINDOWS, page_situations.WINDOWS_AFTER
    same = [getattr(after, name) == getattr(before, name) for name in vars(before)]
    same += [getattr(windows_after, name) == getattr(windows, name) for name in vars(windows)]
    monkeypatch.setattr(page_situations, "meaning", lambda u, name: [*meaning(u, name), *same])
    monkeypatch.setattr(page_situations, "SITUATIONS", {effect: SITUATIONS[effect]})
    assert list(impossible_situations(Asker()))
    assert FINITE.size == 3
