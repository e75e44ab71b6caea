"""Runs to the corners: the shortest one to each situation that an expectation says must be reachable.

Nothing is wrong in these runs. They lead a fuzzer to where bugs would show: a slot with C < A, a close that waits, a chunk
that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvproof.model.expectations import EXPECTATIONS, INSTANCES, Expectation, situations_of
from kvproof.model.explore import Run, Taken, first_steps
from kvproof.model.oracle import Oracle
from kvproof.model.prove import WITNESS, WITNESS_CONFIGS
from kvproof.spec.machine import LEDGER


def corner_runs() -> dict[str, Run]:
    """A shortest run to each situation that must be reachable, of the smallest instance that has one, by the situation's name.

    Raises LookupError where there is none: then the expectations are not met either, and `prove` says so.
    """
    runs = {e.name: _run_to(e, INSTANCES, {}) for e in EXPECTATIONS if e.reachable}
    for config in WITNESS_CONFIGS:
        runs |= {e.name: _run_to(e, (WITNESS,), config) for e in situations_of(config) if e.reachable}
    return runs


def _run_to(expectation: Expectation, instances: tuple[tuple[int, int], ...], config: Mapping[str, Any]) -> Run:
    for page_size, row_width in instances:
        oracle = Oracle.of(page_size, row_width, **config)

        def is_there(step: Taken, d: Any = oracle.d) -> bool:
            return bool(expectation.holds(d, step.outcome.after))

        steps = first_steps(oracle, LEDGER, is_there)
        if steps is not None:
            return Run(page_size, row_width, steps, {}, config)
    raise LookupError(f"no run leads to: {expectation.name}")
