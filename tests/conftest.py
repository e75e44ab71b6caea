"""For all tests: nothing is read from, or left in, the cache of whoever runs them, and no example of Hypothesis is timed.

One run has one cache, which the workers of pytest-xdist share. The checker is compiled into it by a process beside them, and the
tests that need it come last: so it is compiled once, and nobody waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("kvproof", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvproof")

CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
COMPILING = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker: the variable is its parent's
        return
    config.stash[CACHE] = tempfile.TemporaryDirectory(prefix="kvproof-tests-", ignore_cleanup_errors=True)
    os.environ["KVPROOF_CACHE"] = config.stash[CACHE].name
    if config.getoption("numprocesses", None) and not config.getoption("collectonly"):
        command = [sys.executable, "-m", "kvproof.conformance.compiled.warm"]
        config.stash[COMPILING] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


OF_CODE = (
    "conformance/adapters/sglang/code",
    "conformance/adapters/sglang_jax/code",
    "conformance/cli/commands/test_prove_code.py",
    "conformance/code_proof",
    "conformance/gate/test_code.py",
    "model/code",
    "tools/code_mutation",
    "tools/test_code_history.py",
    "tools/test_code_releases.py",
)
"""Tests of the proof of a server's own functions."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: needs_the_compiled_checker(item.path))
    for item in items:
        if any(item.path.is_relative_to(Path(__file__).parent / part) for part in OF_CODE):
            item.add_marker("code")


@cache
def needs_the_compiled_checker(path: Path) -> bool:
    return 'importorskip("numba")' in path.read_text(encoding="utf-8")


def pytest_unconfigure(config: pytest.Config) -> None:
    if COMPILING in config.stash:
        config.stash[COMPILING].kill()
        config.stash[COMPILING].wait()
    if CACHE in config.stash:
        config.stash[CACHE].cleanup()
