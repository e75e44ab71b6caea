"""The tests that run with every version are there."""

from __future__ import annotations

from repository import ROOT
from supply.supported_versions import TESTS


def test_every_test_that_is_named_is_there() -> None:
    assert [name for name in TESTS if not (ROOT / name).exists()] == []
