"""A copy of SGLang with fixes is judged by the rules of the fixes, and follows no deviation."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import fixed_release
from soak.fixed_release import COPIES, add_profile_with_fixes, fixes_of

from kvproof.spec.profiles import PROFILES, profile_of


def test_a_copy_is_known_by_its_folder() -> None:
    assert fixes_of(COPIES / "given_up+own_row" / "sglang") == ("given_up", "own_row")
    assert fixes_of(COPIES.parent / "site" / "0.5.23" / "sglang") == fixes_of(Path("sglang")) == ()


def test_its_profile_has_the_rules_of_the_fixes_and_no_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_release, "PROFILES", profiles := dict(PROFILES))
    own = profile_of("sglang 0.5.23")
    fixed = profiles[add_profile_with_fixes("0.5.23")]
    assert own is not None and own.deviations and not fixed.deviations
    changed = {name for name, action in fixed.actions.items() if action is not own.actions[name]}
    assert changed == {"finish", "retract"}
    assert profile_of("sglang 0.5.23") is own
