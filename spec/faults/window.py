"""Faults of models with a sliding window."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.finish import finish, finish_plain
from kvproof.spec.actions.release import release_row
from kvproof.spec.domain import Domain, minus
from kvproof.spec.effects import End, Insert
from kvproof.spec.faults.fault import but_after, fault
from kvproof.spec.state import Ledger


@fault(
    "F994b",
    of="finish_plain",
    needs="window",
    source="sglang-jax #994",
    breaks=("I16", "I1", "I2", "I4"),
    config={"window": 1},
    smallest=(2, 4),
)
def last_slot_is_cut_off(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window cache strips the last slot before it frees.

    The tree of a windowed cache takes a row over and cuts the last slot off ([:-1]) before it frees the rest.
    """
    right = finish_plain.run(d, s, p)
    own = d.where(p.inserted, d.tokens(d.floor_pages(s.kv_committed_len)), s.cache_protected_len)
    cut = d.every(d.windowed, p.inserted)
    end = d.where(cut, minus(d, s.kv_allocated_len, d.one), s.kv_allocated_len)
    kept = tuple(e for e in right.effects if isinstance(e, (Insert, End)))
    return dataclasses.replace(right, effects=(*kept, *release_row(d, d.true, own, end)))


@fault(
    "F22900",
    of="finish",
    needs="window and speculation",
    source="sglang #22900",
    breaks=("I9", "I2", "I10"),
    config={"speculation": 1, "drafts": 3, "window": 1},
    smallest=(1, 6),
)
def cursor_stays_above_the_trim(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The trim leaves the window cursor above the trimmed length: slots written below it next turn are never evicted."""
    return but_after(finish.run(d, s, p), slot_swa_evicted_seqlen=s.swa_evicted_seqlen)
