"""The memory check: the pages that each term counts for a ledger, in both pools."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Step
from kvproof.spec.domain import Count, Domain, footprint, window_from
from kvproof.spec.effects import Report
from kvproof.spec.state import Ledger, is_live, owner_is_slot

CHECK_ACTIONS = ActionTable()
action = CHECK_ACTIONS.action


def session_held(d: Domain, s: Ledger) -> Count:
    """Pages that the memory check counts as held by the slot: none while its row is in a live batch (#22213, #22753)."""
    return d.where(owner_is_slot(d, s), footprint(d, s.slot_kv_allocated_len, s.slot_cache_protected_len), 0)


def uncached(d: Domain, s: Ledger) -> Count:
    """Pages that the memory check counts for a live turn beside what the tree owns."""
    return d.where(is_live(d, s), footprint(d, s.kv_allocated_len, s.cache_protected_len), 0)


def window_held(d: Domain, s: Ledger) -> Count:
    """Pages of the window pool that the memory check counts as held by the slot: from max(R, E) on."""
    lower = window_from(d, s.slot_cache_protected_len, s.slot_swa_evicted_seqlen)
    return d.where(owner_is_slot(d, s), d.ceil_pages(s.slot_kv_allocated_len) - lower, 0)


def window_uncached(d: Domain, s: Ledger) -> Count:
    """Pages of the window pool that the memory check counts for a live turn: from max(R, E) on."""
    lower = window_from(d, s.cache_protected_len, s.swa_evicted_seqlen)
    return d.where(is_live(d, s), d.ceil_pages(s.kv_allocated_len) - lower, 0)


def report(d: Domain, s: Ledger) -> Report:
    """The terms of the memory check for this ledger, both pools."""
    return Report(session_held(d, s), uncached(d, s), window_held(d, s), window_uncached(d, s))


@action("check", when=lambda d, s: d.true, takes={"lingering": "flag"}, source="sglang #22213")
def check(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The memory check reads its terms.

    `lingering`: the last turn ended in this very step and may still stand in the last batch. It counts nowhere.
    """
    return Step(s, effects=(report(d, s),))
