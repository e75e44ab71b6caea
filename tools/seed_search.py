"""Schedules from the prover: the loads (`conformance/fuzz/loads.py`) of the shortest run of each fault and of each corner."""

from __future__ import annotations

from collections.abc import Callable

from corner_runs import corner_runs

from kvproof.conformance.fuzz.loads import loads_of
from kvproof.model.explore import Run
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.machine import LEDGER


def searched(shortest: Callable[[Fault], Run | None]) -> str:
    """A schedule on each line: those of the shortest run of each fault of the ledger, then those of the corners."""
    faults = (fault for fault in FAULTS.values() if fault.machine is LEDGER)
    of_faults = (run for fault in faults if (run := shortest(fault)) is not None)
    runs = (*of_faults, *corner_runs().values())
    found = (load.as_json() for run in runs for load in loads_of(run))
    return "".join(f"{line}\n" for line in dict.fromkeys(found))
