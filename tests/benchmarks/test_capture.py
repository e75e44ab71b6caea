"""What recording costs the scheduler, counted: no clock is asked."""

from __future__ import annotations

import capture
import pytest

RELEASE = capture.ENVIRONMENT / "site" / "0.5.11"
MOST_BYTECODES = {64: 440, 1: 560}
"""By page size: of six requests that decode. A change that needs more has to say what for."""


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", MOST_BYTECODES)
def test_recording_adds_few_bytecodes_to_a_step(page_size: int) -> None:
    step, added = capture.measured(RELEASE, "bytecodes", page_size)
    assert 0.9 * MOST_BYTECODES[page_size] < added <= MOST_BYTECODES[page_size]
    assert added < step / 10
