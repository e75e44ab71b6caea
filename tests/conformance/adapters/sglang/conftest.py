"""The traces that the tests look at: every scenario at every page size, recorded once per release."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_process import PAGE_SIZES, RECORD_SCENARIOS, Trace, run_with_sglang


@pytest.fixture(scope="session")
def trace_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, int], Trace]:
    """The trace of (release, scenario, page size). Starting SGLang takes seconds, a scenario takes none: all at once."""
    folder = tmp_path_factory.mktemp("traces")
    recorded: set[str] = set()

    def trace(release: str, scenario: str, page_size: int) -> Trace:
        if release not in recorded:
            sizes = map(str, PAGE_SIZES)
            run_with_sglang(release, RECORD_SCENARIOS, "sglang", str(folder), "--page-size", *sizes)
            recorded.add(release)
        return Trace.read(folder / release / f"{scenario}-p{page_size}.jsonl")

    return trace
