"""A recorded server under faults, in short: each fault once, ten kills. `make test-faults` does it at length, and measures.

Nothing here is timed: a machine that tests has other things to do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorder_faults import kinds, runs
from sglang_process import ENVIRONMENT, site_of

SERVERS = [pytest.param("reference", marks=pytest.mark.slow), pytest.param("sglang", marks=pytest.mark.sglang)]
IN_SHORT = [fault for fault in kinds.FAULTS if fault not in (*kinds.ONCE, "server killed")]


@pytest.fixture(scope="module", params=SERVERS)
def host(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "sglang":
        site_of(runs.RELEASE)
    host = runs.Host(request.param)
    yield host
    host.close()


@pytest.fixture(params=kinds.FORMS)
def form(request: pytest.FixtureRequest, host: Any) -> Any:
    """The environment of SGLang needs no pyarrow; without it columns are refused, in one line of the server's log."""
    has_columns = host.kind == "reference" or any(ENVIRONMENT.glob("lib/*/site-packages/pyarrow"))
    if request.param == "columns" and not has_columns:
        pytest.skip("no pyarrow beside SGLang")
    return kinds.FORMS[request.param]


@pytest.mark.parametrize("fault", IN_SHORT)
def test_the_server_goes_on_and_what_is_missing_is_counted(host: Any, tmp_path: Path, fault: str, form: Any) -> None:
    tmp_path.chmod(0o755)
    outcome = kinds.FAULTS[fault](host, form, tmp_path / "0", random.Random(fault))
    assert not outcome.complaints
    assert outcome.served


def test_a_server_that_is_killed_before_it_has_a_log_has_said_nothing(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(folder=tmp_path)
    assert runs.Run.log(run) == ""
    (tmp_path / "log").write_text("it began")
    assert runs.Run.log(run) == "it began"


def test_what_a_killed_server_leaves_is_readable(host: Any, tmp_path: Path, form: Any) -> None:
    for number in range(5):
        chance = random.Random(number)
        outcome = kinds.FAULTS["server killed"](host, form, tmp_path / str(number), chance)
        assert not outcome.complaints
