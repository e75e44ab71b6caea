"""Traces without an implementation: good, bad and long ones."""

from __future__ import annotations

from pathlib import Path

from trace_events import HEADER

from kvproof.conformance.drive.counterexample import save_counterexample
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.model.explore import counterexample
from kvproof.spec.faults import FAULTS


def sessions(path: Path, number: int = 3, *, closed: bool = True) -> Path:
    """Sessions that are opened and closed: two events each. Not `closed`: the recorder did not finish."""
    with write_trace(path, HEADER) as writer:
        for n in range(number):
            writer.event(action="open", session=f"s{n}")
            writer.event(action="close", session=f"s{n}")
        if not closed:
            writer.abandon()
    return path


def broken(path: Path, fault: str = "F22862b") -> Path:
    """The shortest run of a fault. Of F22862b: event 7, line 9, frees a page that still holds tokens."""
    run = counterexample(FAULTS[fault])
    save_counterexample(run, FAULTS[fault], path)
    return path
