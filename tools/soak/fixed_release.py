"""A copy of SGLang with the fixes of docs/findings/fixes, and the rules that it is judged by."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Mapping
from pathlib import Path

from kvproof.spec.actions import Action
from kvproof.spec.profiles import PROFILES, profile_of

ROOT = Path(__file__).resolve().parents[2]
COPIES = ROOT / ".venv-sglang" / "fixed"
"""Where tests/conformance/adapters/sglang/fixed_sglang.py puts a copy: a folder named by its fixes."""
VARIANT = ROOT / "examples" / "variants" / "keeps_what_is_verified.py"
"""The rules of the fixes: proved, and SGLang's functions follow them with all fixes (tests)."""


def fixes_of(package: Path) -> tuple[str, ...]:
    """The fixes in the SGLang whose package is in this folder; none if it is as it was published."""
    folder = package.resolve().parent
    return tuple(folder.name.split("+")) if folder.parent == COPIES else ()


def rules_of(variant: Path, actions: Mapping[str, Action]) -> dict[str, Action]:
    """Those of these actions that a variant file replaces, as it has them."""
    replaced = runpy.run_path(str(variant))["REPLACES"]
    return {name: dataclasses.replace(actions[name], run=run) for name, run in replaced.items()}


def add_profile_with_fixes(release: str) -> str:
    """The profile of a release with the rules of the fixes and no known deviation, by its name in PROFILES."""
    own = profile_of(f"sglang {release}")
    assert own is not None
    name, rules = f"{own.name}-with-fixes", {**own.rules, **rules_of(VARIANT, own.actions)}
    PROFILES[name] = dataclasses.replace(own, name=name, rules=rules, deviations=())
    return name
