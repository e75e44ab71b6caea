"""Runs, refusals and denials are as expected, and each kind can fail."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

from kvproof.model.expected_runs import DENIED, RUNS, unexpected
from kvproof.spec.actions import Action, Step
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import MACHINES, Machine


def machine(name: str) -> Machine:
    return next(m for m in MACHINES if m.name == name)


def with_action(m: Machine, name: str, **changes: Any) -> Machine:
    action: Action = dataclasses.replace(m.actions[name], **changes)
    return dataclasses.replace(m, actions={**m.actions, name: action})


def test_all_is_as_expected() -> None:
    assert list(unexpected()) == []


def test_names_are_unique_and_machines_exist() -> None:
    names = [e.name for e in (*RUNS, *DENIED)]
    assert len(set(names)) == len(names)
    assert {e.machine for e in (*RUNS, *DENIED)} <= {m.name for m in MACHINES}


def test_every_action_of_a_small_machine_is_taken_by_some_run() -> None:
    taken = {name for expected in RUNS for name, _ in expected.run}
    small = {name for m in MACHINES if m.name != "ledger" for name in m.actions}
    assert small <= taken


def test_a_guard_that_is_left_out_is_found() -> None:
    def staged(d: Any, s: Any, p: SimpleNamespace) -> Step:
        return dataclasses.replace(machine("admission").actions["stage_row"].run(d, s, p), guards=())

    broken = with_action(machine("admission"), "stage_row", run=staged)
    assert "an admission stages a lock, a row and pages: stage_row is not refused" in unexpected([broken])


def test_an_update_that_is_forgotten_is_found() -> None:
    broken = with_action(machine("tree"), "tree_lock", run=lambda d, s, p: Step(s))
    assert "a node that is locked twice is protected once: lock_ref is 0, not 2" in unexpected([broken])


def test_a_run_that_is_no_longer_possible_is_found() -> None:
    broken = with_action(machine("progress"), "decode_once", applies=lambda d, s: d.false)
    assert "a decode step gives one token: decode_once is refused" in unexpected([broken])


def test_an_invariant_that_allows_too_much_is_found() -> None:
    lax: dict[str, Invariant] = {
        i: dataclasses.replace(invariant, holds=lambda d, s: d.true)
        for i, invariant in machine("admission").invariants.items()
    }
    broken = dataclasses.replace(machine("admission"), invariants=lax)
    assert "a lock that no admission holds: no invariant denies it" in unexpected([broken])
