"""For all tests: nothing is read from, or left in, the cache of whoever runs them.

One run has one cache. The workers of pytest-xdist inherit it, so that each set of rules is compiled once and not by each worker.
"""

from __future__ import annotations

import os
import tempfile

import pytest

CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[CACHE] = tempfile.TemporaryDirectory(prefix="kvproof-tests-", ignore_cleanup_errors=True)
        os.environ["KVPROOF_CACHE"] = config.stash[CACHE].name


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        config.stash[CACHE].cleanup()
