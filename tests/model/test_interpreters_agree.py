"""The oracle's integers and the proof's Z3 terms give the same step, for arbitrary states, parameters and page sizes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_agreement import disagreements
from model_runs import CONFIGURATIONS

from kvproof.model.integers import Integers
from kvproof.spec.actions import Action, Step
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES, Machine
from kvproof.spec.state import pristine

VALUES = {
    "length": st.integers(0, 40),
    "count": st.integers(-2, 12),
    "flag": st.booleans(),
    "phase": st.integers(0, 3),
}
TABLE: dict[str, tuple[Machine, Action]] = {
    **{a.name: (m, a) for m in MACHINES for a in m.actions.values()},
    **{f"{name} with {f.id}": (f.machine, a) for f in FAULTS.values() for name, a in f.deviations.items()},
}


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=15)
@given(
    data=st.data(),
    page_size=st.integers(1, 9),
    row_width=st.integers(1, 60),
    config=st.sampled_from([*CONFIGURATIONS, {"window": 1, "overlap": True}]),
)
def test_oracle_and_z3_give_the_same_step(
    name: str, data: st.DataObject, page_size: int, row_width: int, config: dict[str, Any]
) -> None:
    machine, action = TABLE[name]
    fields = dataclasses.fields(machine.state)
    state = {f.name: data.draw(VALUES[f.metadata["sort"]], label=f.name) for f in fields}
    params = {n: data.draw(VALUES[sort], label=n) for n, sort in action.params.items()}
    d = Integers(page_size, row_width, **config)
    assert disagreements(machine, action, d, machine.state(**state), params) == {}


def test_what_differs_is_named() -> None:
    machine, right = TABLE["pass_by"]

    def otherwise(d: Any, s: Any, p: SimpleNamespace) -> Step:
        return Step(s.but(turns=s.turns + (1 if isinstance(d, Integers) else 2)))

    d = Integers(1, 3)
    before = pristine(d)
    assert disagreements(machine, right, d, before, {}) == {}
    found = disagreements(machine, dataclasses.replace(right, run=otherwise), d, before, {})
    assert found["turns"] == (1, 2)
