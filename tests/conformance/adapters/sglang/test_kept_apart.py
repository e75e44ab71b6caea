"""Prefixes that the tree keeps apart have numbers of their own, though their pages hold the same tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_process import EACH_RELEASE, LATER, RELEASES, called

from kvproof.conformance.replay.replay import CONFORMS

NO_SUCH_NAMESPACE: dict[str, list[str]] = {RELEASES[0]: ["extra_key", "cache_salt"], LATER[-2]: [], LATER[-1]: []}
"""What a release does not keep prompts apart by; others know no `cache_salt`."""


@pytest.mark.parametrize("release", EACH_RELEASE)
def test_what_the_tree_keeps_apart_has_numbers_of_its_own(release: str, tmp_path: Path) -> None:
    found = called(release, "drive_kept_apart:runs", tmp_path)
    assert {run["verdict"] for run in found.values()} == {CONFORMS}, found
    are_one = {name for name, run in found.items() if len(set(map(tuple, run["pages"]))) == 1}
    assert are_one == {name for name, run in found.items() if len(set(run["prefixes"])) == 1}
    assert are_one == {"same pairs", *NO_SUCH_NAMESPACE.get(release, ["cache_salt"])}
