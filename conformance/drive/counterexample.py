"""Saves runs of the model as traces, which are replayed and driven like those of any implementation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import VIOLATES, replay
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.model.explore import Run
from kvproof.model.witness import Witness
from kvproof.model.witness_machines import witness_of_fault
from kvproof.spec import SPEC_VERSION
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.faults import Fault
from kvproof.spec.trace import STOPPED, Header, Producer


def save_counterexample(run: Run | None, fault: Fault, path: str | Path) -> int:
    """Write the shortest run that a faulty rule allows as a complete trace; return its number of events.

    Raises UserError if there is no run, or if a replay would accept its trace: then no file is left.
    """
    if run is None:
        raise UserError(f"no trace of {fault.id} to save: no run of the small instances shows it")
    events = write_witness(witness_of_fault(fault, run), path, {"fault": fault.id, "breaks": list(run.broken)})
    if replay(path).verdict != VIOLATES:
        Path(path).unlink()
        raise UserError(f"no trace of {fault.id} to save: no event tells what it does wrong ({fault.summary})")
    return events


def write_witness(witness: Witness, path: str | Path, extra: Mapping[str, Any]) -> int:
    """`extra` is for people: neither a replay nor a drive reads it. Launches have no `step`: in a run of the model no request
    waits for another, so which of them are one batch is not known."""
    header = Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-model", version=version("kvproof"), target="model"),
        config=witness.config,
        extra=dict(extra),
    )
    with write_trace(path, header) as writer:
        for event in witness.events:
            told = event.model_fields_set - {"seq", *(("step",) if event.action in LAUNCHES else ())}
            writer.event(**{name: getattr(event, name) for name in told})
        writer.close(STOPPED)  # a run of the model may end anywhere
    return len(witness.events)
