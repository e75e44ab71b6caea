"""The traces that the tests look at: every scenario at every page size, recorded once per release."""

from __future__ import annotations

import fcntl
from collections.abc import Callable

import pytest
from sglang_process import PAGE_SIZES, RECORD_SCENARIOS, Trace, run_with_sglang


@pytest.fixture(scope="session")
def trace_of(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str, str, int], Trace]:
    """The trace of (release, scenario, page size). Starting SGLang takes seconds, a scenario takes none: all at once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "sglang-traces"  # one for all workers of pytest-xdist
    folder.mkdir(exist_ok=True)

    def trace(release: str, scenario: str, page_size: int) -> Trace:
        recorded = folder / f"{release}.recorded"
        if not recorded.exists():
            with (folder / f"{release}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not recorded.exists():
                    sizes = map(str, PAGE_SIZES)
                    run_with_sglang(release, RECORD_SCENARIOS, "sglang", str(folder), "--page-size", *sizes)
                    recorded.touch()
        return Trace.read(folder / release / f"{scenario}-p{page_size}.jsonl")

    return trace
