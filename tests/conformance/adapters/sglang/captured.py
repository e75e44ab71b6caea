"""A scheduler in the headless driver that is captured as a server's is; for scripts in SGLang's environment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvproof.conformance.adapters.live.live_trace import is_being_written
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings


@contextmanager
def captured(settings: Settings, path: Path) -> Iterator[Headless]:
    """Behind it the trace at `path` is whole."""
    headless = Headless(settings)
    # The driver's, so that the class's own is left, which a server has and a capture watches.
    vars(headless.scheduler).pop(headless.release.idle_check)
    capture = Capture(headless.scheduler, str(path))
    capture.start()
    yield headless
    capture.end()
    while is_being_written(path):
        time.sleep(0.01)
