"""Faults of a turn that is aborted mid-way."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.finish import abort_first, save_slot
from kvproof.spec.domain import Domain
from kvproof.spec.effects import End, Forget
from kvproof.spec.faults.fault import fault
from kvproof.spec.state import Ledger, end_turn


@fault("F22790a", of="abort_nth", needs="abort", source="sglang #22790", breaks=("I8", "I7", "I14", "I9"))
def slot_takes_the_aborted_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A later turn aborted mid-way saves its partial lengths into the slot."""
    after = end_turn(d, save_slot(d, s)).but(inflight=d.false)
    return Step(after, effects=(Forget(s.checkpoint_len), End(d.true)))


@fault("F22790b", of="abort_first", needs="abort", source="sglang #22790", breaks=("I16", "I2", "I11"))
def first_turn_returns_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A first turn aborted mid-way has no slot yet: row, pages and tree lock are not returned."""
    return dataclasses.replace(abort_first.run(d, s, p), effects=(End(d.true),))
