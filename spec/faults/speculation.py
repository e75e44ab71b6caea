"""Faults of speculative decoding: what a round reserves, commits and leaves behind."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.decode import prepare_round, result
from kvproof.spec.actions.finish import finish
from kvproof.spec.domain import Domain, orphan_start
from kvproof.spec.effects import Free, Write
from kvproof.spec.faults.fault import but_after, fault, without
from kvproof.spec.state import Ledger

V2 = {"overlap": True, "speculation": 2}


@fault("F21875c", of="finish", needs="speculation v2", source="sglang #21875", breaks=("I7", "I2", "I10"), config=V2)
def slot_takes_what_is_reserved(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The over-allocated tail goes into the slot untrimmed."""
    return but_after(without(finish.run(d, s, p), Free), slot_kv_allocated_len=s.kv_allocated_len)


@fault(
    "F22897",
    of="finish",
    needs="speculation",
    source="sglang #22897",
    breaks=("I8", "I2", "I7", "I10", "I14"),
    config={"speculation": 1},
)
def overshoot_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The overshoot of a finishing speculative round is not trimmed.

    The tail behind C is freed, what a round committed behind T is not.
    """
    right = finish.run(d, s, p)
    after = right.after.but(slot_kv_committed_len=s.kv_committed_len, slot_kv_allocated_len=s.kv_committed_len)
    tail = Free(orphan_start(d, s.kv_committed_len), s.kv_allocated_len)
    return dataclasses.replace(right, after=after, effects=(tail, *without(right, Free).effects))


def _whole_round_at_resolve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The whole accept_len is added when the result is resolved. (A prefill's result has nothing to add.)"""
    right = result.run(d, s, p)
    of_round = s.kv_committed_len < s.kv_valid
    committed = s.kv_committed_len + d.where(of_round, p.tokens, d.zero)
    written = Write(s.kv_valid, d.where(of_round, s.kv_valid + (p.tokens - d.one), s.kv_valid))
    effects = (*without(right, Write).effects, written)
    return dataclasses.replace(right, after=right.after.but(kv_committed_len=committed), effects=effects)


@fault(
    "F22651",
    of="prepare_round",
    needs="speculation v2",
    source="sglang #22651",
    breaks=("I8", "I22"),
    also={"result": _whole_round_at_resolve},
    config=V2,
)
def nothing_is_claimed_at_prepare(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Spec v2 adds the whole accept_len at resolve and claims nothing at prepare: the slot inherits one token short."""
    return but_after(prepare_round.run(d, s, p), kv_committed_len=s.kv_committed_len)
