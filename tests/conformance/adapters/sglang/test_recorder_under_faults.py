"""A recorded server under faults, in short: each fault once, ten kills. `make test-faults` does it at length, and measures.

Nothing here is timed: a machine that tests has other things to do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder_faults import kinds, runs
from sglang_process import ENVIRONMENT

SERVERS = [pytest.param("reference", marks=pytest.mark.slow), pytest.param("sglang", marks=pytest.mark.sglang)]
IN_SHORT = [fault for fault in kinds.FAULTS if fault not in (*kinds.ONCE, "server killed")]


@pytest.fixture(scope="module", params=SERVERS)
def host(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "sglang" and not (ENVIRONMENT / "site" / runs.RELEASE).exists():
        pytest.skip(f"no SGLang {runs.RELEASE} in {ENVIRONMENT.name}: run `make test-sglang`")
    host = runs.Host(request.param)
    yield host
    host.close()


def has_columns(host: Any) -> bool:
    """The environment of SGLang needs no pyarrow; without it columns are refused, in one line of the server's log."""
    return host.kind == "reference" or any(ENVIRONMENT.glob("lib/*/site-packages/pyarrow"))


@pytest.mark.parametrize("form", kinds.FORMS)
@pytest.mark.parametrize("fault", IN_SHORT)
def test_the_server_goes_on_and_what_is_missing_is_counted(host: Any, tmp_path: Path, fault: str, form: str) -> None:
    if form == "columns" and not has_columns(host):
        pytest.skip("no pyarrow beside SGLang")
    tmp_path.chmod(0o755)
    outcome = kinds.FAULTS[fault](host, kinds.FORMS[form], tmp_path / "0", random.Random(fault))
    assert not outcome.complaints
    assert outcome.served


@pytest.mark.parametrize("form", kinds.FORMS)
def test_what_a_killed_server_leaves_is_readable(host: Any, tmp_path: Path, form: str) -> None:
    if form == "columns" and not has_columns(host):
        pytest.skip("no pyarrow beside SGLang")
    for number in range(5):
        chance = random.Random(number)
        outcome = kinds.FAULTS["server killed"](host, kinds.FORMS[form], tmp_path / str(number), chance)
        assert not outcome.complaints
