"""For all tests: nothing is read from, or left in, the cache of whoever runs them."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["KVPROOF_CACHE"] = str(tmp_path_factory.mktemp("kvproof-cache"))
