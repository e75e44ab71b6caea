"""Faults of the session around its turns: create, refuse, detach, close."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.prefill import match_key_len
from kvproof.spec.actions.release import release_slot
from kvproof.spec.actions.session import create
from kvproof.spec.domain import Domain, smaller
from kvproof.spec.effects import Begin, EndSession
from kvproof.spec.faults.fault import but_after, fault
from kvproof.spec.faults.restore import restored_with_its_tail
from kvproof.spec.state import Ledger


@fault(
    "F21875a",
    of="defer_close",
    needs="close",
    source="sglang #21875",
    breaks=("I6", "I1", "I2", "I4", "I5", "I8", "I10", "I11", "I12", "I15", "I16"),
)
def close_frees_a_running_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Close during decode frees the KV under the running request.

    The session is gone at once; its turn runs on, of no session.
    """
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    gone = released.but(is_open=d.false, closing=d.false, inflight=d.false, checkpoint_len=d.zero)
    return Step(gone, effects=(*effects, EndSession()))


@fault("F21875b", of="detach", needs="pre-abort", source="sglang #21875", breaks=("I7", "I12"))
def cut_turn_restores_the_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A too-long turn, its input cut to one token, still restores the slot and overwrites its row."""
    return restored_with_its_tail(d, s, smaller(d, s.slot_kv_committed_len, match_key_len(d, s)))


@fault("F22790c", of="detach", needs="abort", source="sglang #22790", breaks=("I5",))
def pre_aborted_turn_stays(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A pre-aborted turn is treated as a session turn.

    It falls through to the tree, which has nothing for an empty key, and stays the session's turn.
    """
    return Step(s.but(matched=d.true, prefix_len=d.zero, cache_protected_len=d.zero))


@fault("F22790d", of="create", needs="abort", source="sglang #22790", breaks=("I14",))
def create_moves_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The checkpoint moves at create: after an abort the next turn builds on the aborted tokens."""
    return but_after(create.run(d, s, p), checkpoint_len=p.origin_len)


@fault("F22790e", of="refuse", needs="concurrent turns", source="sglang #22790", breaks=("I15", "I5"))
def second_turn_is_admitted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No in-flight marker: a second turn on a busy session is admitted and shares the row."""
    return Step(s, effects=(Begin(s.origin_len, d.true),))
