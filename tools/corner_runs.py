"""Runs to the corners: the shortest one to each situation that an expectation says must be reachable.

Nothing is wrong in these runs. They lead a fuzzer to where bugs would show: a slot with C < A, a close that waits, a chunk
that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvproof.model.expectations import CONFIGURED, Expectation
from kvproof.model.explore import Run, Taken, first_steps
from kvproof.model.oracle import Oracle
from kvproof.model.small_instances import SMALL, Instance, said
from kvproof.spec.machine import LEDGER


def corner_runs() -> dict[str, Run]:
    """A shortest run to each situation that must be reachable, of the smallest instance that has one, by the situation's name.

    Raises LookupError where there is none: then the expectations are not met either, and `prove` says so.
    """
    runs: dict[str, Run] = {}
    for config, expectations in CONFIGURED.items():
        instances = [at for at in SMALL if said(at.config) == config]
        runs |= {e.name: _run_to(e, instances) for e in expectations if e.reachable}
    return runs


def _run_to(expectation: Expectation, instances: Iterable[Instance]) -> Run:
    for at in instances:
        oracle = Oracle.of(at.page_size, at.row_width, **at.config)

        def is_there(step: Taken, d: Any = oracle.d) -> bool:
            return bool(expectation.holds(d, step.outcome.after))

        steps = first_steps(oracle, LEDGER, is_there)
        if steps is not None:
            return Run(at.page_size, at.row_width, steps, {}, at.config)
    raise LookupError(f"no run leads to: {expectation.name}")
