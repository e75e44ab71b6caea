"""Faults of the memory check's terms."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.memory_check import report
from kvproof.spec.domain import Domain, footprint
from kvproof.spec.faults.fault import fault
from kvproof.spec.state import Ledger, is_live


@fault("F22213", of="check", needs="busy check", source="sglang #22213", breaks=("I2",))
def lent_slot_counts_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A lent slot is counted as held and as uncached.

    A turn that just ended counts as uncached although its slot holds the pages.
    """
    held = footprint(d, s.slot_kv_allocated_len, s.slot_cache_protected_len)
    ended = d.every(p.lingering, s.slot_held, d.no(is_live(d, s)))
    right = report(d, s)
    terms = dataclasses.replace(
        right, session_held=d.where(s.slot_held, held, 0), uncached=right.uncached + d.where(ended, held, 0)
    )
    return Step(s, effects=(terms,))


@fault("F22753", of="check", needs="busy check", source="sglang #22753", breaks=("I2",))
def queued_turn_leaves_the_slot_lent(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The lent flag is set on restore and cleared on save; a rejected or queued turn leaves it set.

    The slot's own flag says that it is lent, from the restore until the save, whether the turn runs or not.
    """
    right = report(d, s)
    held, window_held = d.where(s.lent, 0, right.session_held), d.where(s.lent, 0, right.window_held)
    return Step(s, effects=(dataclasses.replace(right, session_held=held, window_held=window_held),))
