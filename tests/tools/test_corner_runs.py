"""Runs to the corners of the model: each ends in its situation, without anything broken."""

from __future__ import annotations

import corner_runs as module
import pytest
from corner_runs import corner_runs

from kvproof.model.expectations import CONFIGURED, Expectation
from kvproof.model.integers import Integers
from kvproof.model.small_instances import Instance

REACHABLE = {e.name: e for some in CONFIGURED.values() for e in some if e.reachable}


@pytest.mark.slow
def test_each_situation_has_a_run_that_ends_in_it_and_in_no_earlier_step() -> None:
    runs = corner_runs()
    assert runs.keys() == REACHABLE.keys()
    for name, run in runs.items():
        d = Integers(run.page_size, run.row_width, **run.config)
        met = [bool(REACHABLE[name].holds(d, step.outcome.after)) for step in run.steps]
        assert met == [False] * (len(met) - 1) + [True], name
        assert not any(step.outcome.broken(d) or step.outcome.failed_guards for step in run.steps), name


def test_a_situation_that_is_never_reached_has_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Expectation("a row of five", True, lambda d, s: s.row_end == 5)
    monkeypatch.setattr(module, "CONFIGURED", {"plain": (never,)})
    monkeypatch.setattr(module, "SMALL", (Instance(1, 2),))
    with pytest.raises(LookupError, match="no run leads to: a row of five"):
        corner_runs()
