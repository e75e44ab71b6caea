"""Faults of the match that restores a slot."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.prefill import match_key_len, match_slot, restored, without_tail
from kvproof.spec.domain import Domain, Length, minus, orphan_start, smaller
from kvproof.spec.effects import Free
from kvproof.spec.faults.fault import but_after, fault
from kvproof.spec.state import FIELD_NAMES, GHOSTS, Ledger


def restored_with_its_tail(d: Domain, s: Ledger, prefix_len: Length) -> Step:
    """Before #22862: the row is restored and will be overwritten from prefix_len; nothing is freed."""
    return Step(restored(d, s, prefix_len))


@fault("F20070", of="match_slot", needs="P > 1", source="sglang #20070", breaks=("I12",))
def matched_prefix_is_protected(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session turn takes len(prefix) (= C) for R: not whole pages, and more than the tree owns."""
    right = match_slot.run(d, s, p)
    return but_after(right, cache_protected_len=right.after.prefix_len)


@fault("F20476", of="match_slot", needs="chunks", source="sglang #20476", breaks=("I5", "I2", "I11", "I16"))
def slot_loses_its_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Restoring clears the slot's row: a rejected chunk that matches again falls through to the tree and loses the row."""
    return but_after(match_slot.run(d, s, p), slot_held=d.false)


@fault("F20557", of="match_slot", needs="a session turn with logprobs", source="sglang #20557", breaks=("I7", "I12"))
def logprobs_cut_the_key(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """logprob_start_len = 0 cuts the match key to nothing: prefix_len = 0 and the whole row is overwritten."""
    right, cut = match_slot.run(d, s, p), restored_with_its_tail(d, s, d.zero)
    after = {
        name: d.where(s.logprob, getattr(cut.after, name), getattr(right.after, name))
        for name in FIELD_NAMES
        if name not in GHOSTS
    }
    prefix_len = after["prefix_len"]
    kept = d.where(s.logprob, s.slot_kv_allocated_len, orphan_start(d, prefix_len))
    return Step(s.but(**after), effects=(Free(kept, s.slot_kv_allocated_len),))


@fault("F22862a", of="match_slot", needs="retract", source="sglang #22862", breaks=("I7", "I12"))
def tail_is_overwritten(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No tail free: the extend overwrites [prefix_len, A) and the old pages are orphaned.

    One token more was kept back.
    """
    one_less = minus(d, match_key_len(d, s), d.one)
    return restored_with_its_tail(d, s, smaller(d, s.slot_kv_committed_len, one_less))


@fault(
    "F22862b",
    of="match_slot",
    needs="P > 1",
    source="sglang #22862",
    breaks=("I4", "I1", "I2", "I6", "I8", "I10"),
    smallest=(2, 4),
)
def tail_free_begins_inside_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail free starts at prefix_len: the page that still holds committed tokens is freed."""
    prefix_len = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    after = without_tail(d, restored(d, s, prefix_len))
    return Step(after, effects=(Free(prefix_len, s.slot_kv_allocated_len),))
