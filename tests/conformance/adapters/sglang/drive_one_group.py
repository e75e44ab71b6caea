"""Two prompts that begin alike are prefilled in one batch, and the first is longer than the window; runs in SGLang's environment.

The first frees its old window pages in the free group of the batch. In the same group the tree gives an index of these the
window page of the second prompt.
"""

from __future__ import annotations

from pathlib import Path

from captured import captured

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings

SETTINGS = Settings(pool_tokens=128, max_running_requests=8, window=4, context_length=64)
FIRST = list(range(20, 36))
SECOND = [*FIRST[:2], 50, 51, 52]


def begin_alike(path: str) -> None:
    with captured(Headless(SETTINGS), Path(path), own_idle_check=True) as headless:
        headless.send_tokens("first", FIRST, 6)
        headless.send_tokens("second", SECOND, 6)
        headless.run(20)
