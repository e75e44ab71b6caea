"""The pytest plugin: a mark that runs a bounded fuzz or a recorded scenario before a test, and a recorder for other tests.

    import kvproof

    @kvproof.conformance(target="my_module:factory", seconds=20, settings={"page_size": 4})
    def test_the_fix_holds() -> None: ...

    def test_by_hand(kvproof_recorder) -> None:
        kvproof_recorder.begin(header)           # then `kvproof_recorder(event)` for each event
        kvproof_recorder.check()                 # the model allows them all

pytest loads it wherever kvproof is installed, so what it does (`pytest_checks.py`) is imported when a test asks for it.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARK, INI = "kvproof_conformance", "kvproof_dir"
KEPT = pytest.StashKey["list[str]"]()
FAILED = pytest.StashKey[bool]()


def conformance(**options: Any) -> pytest.MarkDecorator:
    """`@kvproof.conformance(...)`: before the test, its target is fuzzed for a while, or plays a scenario, and is judged.

    `target`: as for `kvproof fuzz`. `seconds`, `seed`, `settings`, `faults`: of the search. `scenario`: instead of a search, one
    by name (`kvproof list scenarios`) on reference, sglang or sglang-jax. `page_size`: of the scenario. `profile`: the rules.
    """
    return getattr(pytest.mark, MARK)(**options)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "where kvproof leaves findings and traces of failed tests", default="out/kvproof")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(target, seconds, seed, settings, faults, scenario, page_size, profile): kvproof.conformance"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    mark = item.get_closest_marker(MARK)
    if mark is not None:
        if mark.args:
            pytest.fail("@kvproof.conformance takes its options by name, e.g. target='reference'", pytrace=False)
        keep = item.stash.setdefault(KEPT, []).append
        failure = _checks().failure_of(_folder_of(item), keep, **mark.kwargs)
        if failure is not None:
            pytest.fail(failure, pytrace=False)


@pytest.hookimpl(hookwrapper=True)  # the newer kind of wrapper would break older releases of pytest
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        item.stash[FAILED] = True
        if kept := item.stash.get(KEPT, []):
            report.sections.append(("kvproof", "\n".join(kept)))


@pytest.fixture
def kvproof_recorder(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A `Recorder`. Its trace stays if the test fails, and the report says where; else it is removed."""
    recorder = _checks().Recorder(_folder_of(request.node) / "trace.jsonl")
    request.node.stash.setdefault(KEPT, []).extend(
        [f"trace: {recorder.path}", f"kvproof replay {shlex.quote(str(recorder.path))}"]
    )
    yield recorder
    recorder.close()
    if not request.node.stash.get(FAILED, False):
        recorder.remove()


def _checks() -> Any:
    return importlib.import_module("kvproof.conformance.pytest_checks")


def _folder_of(item: pytest.Item) -> Path:
    """The test's own, by its name. The folder that it stands in is made."""
    folder = item.config.rootpath / item.config.getini(INI)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")
