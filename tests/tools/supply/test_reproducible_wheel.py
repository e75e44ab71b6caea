"""The wheel is the same from the same sources, and where it is not that is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from supply import reproducible_wheel


@pytest.mark.slow
def test_the_wheel_is_the_same_from_the_same_sources_and_another_at_another_time(tmp_path: Path) -> None:
    one, same, other = (
        reproducible_wheel.built(tmp_path / name, epoch, touched)
        for name, epoch, touched in (("a", 10**9, 10**9), ("another", 10**9, 2 * 10**9), ("c", 10**9 + 86_400, 10**9))
    )
    assert reproducible_wheel.differences(one, same) == []
    assert "kvproof/__init__.py" in reproducible_wheel.differences(one, other)
