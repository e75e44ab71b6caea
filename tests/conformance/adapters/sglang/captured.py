"""A scheduler in the headless driver that is captured as a server's is; for functions that run in SGLang's environment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.live.live_trace import is_being_written
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless

Spoil = Callable[[Capture], AbstractContextManager[Any]]


@contextmanager
def captured(
    headless: Headless, path: Path, *, spoil: Spoil | None = None, own_idle_check: bool = False
) -> Iterator[Headless]:
    """Behind it the trace at `path` is whole.

    `spoil`: what goes wrong with the capture meanwhile. `own_idle_check`: that of the scheduler's class, which a server has and a
    capture watches, is in place of the driver's; then `drain` does not see when it is idle.
    """
    logging.getLogger("kvproof").setLevel(logging.CRITICAL)
    if own_idle_check:
        vars(headless.scheduler).pop(headless.release.idle_check)
    capture = Capture(headless.scheduler, str(path))
    capture.start()
    with spoil(capture) if spoil is not None else nullcontext():
        yield headless
    capture.end()
    while is_being_written(path):
        time.sleep(0.01)


def outcome(headless: Headless) -> list[Any]:
    """Everything that a client or the allocator could notice, how the run ended apart."""
    outputs = [(reply.rids, reply.output_ids) for reply in headless.replies if hasattr(reply, "output_ids")]
    assert any(ids for _, ids in outputs), "no output: nothing was compared"
    return [headless.steps, outputs, headless.free_pages(), list(headless.rows.free_slots), headless.tokens(1)]
