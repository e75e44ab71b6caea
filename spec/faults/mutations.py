"""Mutations: no real bugs. Each keeps the invariant that its id names from being vacuous."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.decode import decode
from kvproof.spec.actions.prefill import extend
from kvproof.spec.domain import Domain, minus
from kvproof.spec.effects import Take
from kvproof.spec.faults.fault import but_after, fault, with_parts
from kvproof.spec.staging import Admission, Deferred, overwrite_row
from kvproof.spec.state import Ledger
from kvproof.spec.tree import Node, tree_unlock


@fault("M3", of="decode", breaks=("I3", "I1", "I2"))
def position_without_allocation(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A decode step claims a position without raising A."""
    return but_after(decode.run(d, s, p), kv_allocated_len=s.kv_allocated_len)


@fault("M13", of="tree_unlock", breaks=("I13",))
def protected_counter_stays(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """An unlock leaves the counter of protected pages as it was."""
    return but_after(tree_unlock.run(d, s, p), protected=s.protected)


@fault("M17", of="late_result", needs="overlap", breaks=("I17",))
def late_result_is_counted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result that arrives late still raises C."""
    return Step(s.but(kv_committed_len=s.kv_committed_len + d.one))


@fault("M18", of="extend", needs="P > 1", breaks=("I18",), smallest=(2, 4))
def tokens_are_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Admission charges tokens, not pages.

    It is charged by tokens alone, without the page that each request may need more.
    """
    return with_parts(extend.run(d, s, p), Take, charge=minus(d, p.seq_len, s.prefix_len))


@fault("M19", of="cancel_admission", breaks=("I19",))
def cancelled_admission_keeps_its_lock(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """A failed admission keeps its tree lock."""
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - s.rows - s.pages))


@fault("M24", of="overwrite_row", breaks=("I24",))
def deferred_free_keeps_a_view(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """A deferred free keeps a view of the row."""
    return but_after(overwrite_row.run(d, s, p), listed=d.where(s.waits, p.page, s.listed))
