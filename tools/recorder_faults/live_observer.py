"""Records the reference implementation while it serves, as a server is recorded: it never waits, and nothing stops it.

    observer = LiveObserver("out/live.jsonl", config)
    scheduler = Scheduler(config, observer)

What is seen goes to a process of its own, which writes (`live/trace.py`). `record` of `reference.py` writes by itself: there a
trace is all that is wanted, so one that cannot be written is an error.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kvproof.conformance.adapters.live.handover import TraceLost
from kvproof.conformance.adapters.live.live_trace import LiveTrace, sentence
from kvproof.conformance.adapters.reference import header_of
from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Event

logger = logging.getLogger("kvproof")


class LiveObserver:
    """Takes the events of one scheduler. If nothing can be recorded, or no more, the log says why, once."""

    def __init__(self, out: str | Path, config: EngineConfig) -> None:
        """`out` as in `KVPROOF_TRACE`: lines or columns by its suffix, and another name if there is such a file."""
        self.trace: LiveTrace | None = None
        try:
            self.trace = LiveTrace(str(out), None, header_of(config))
        except Exception as error:
            logger.warning("kvproof records nothing: %s", sentence(error))

    def on_event(self, event: Event) -> None:
        trace = self.trace
        if trace is None or trace.has_ended:
            return
        try:
            trace.put(vars(event))
        except Exception as error:
            trace.stop(sentence(error), dropped=0 if isinstance(error, TraceLost) else 1)

    def idle(self) -> None:
        """Nothing is in flight: what was recorded so far is a whole trace."""
        trace = self.trace
        if trace is None or trace.has_ended:
            return
        try:
            trace.handover.idle()
        except Exception as error:
            trace.stop(sentence(error))

    def end(self, reason: str = "finished") -> None:
        """Nothing more comes. Waits for the last bytes, some seconds at most."""
        if self.trace is not None:
            self.trace.end(reason)
