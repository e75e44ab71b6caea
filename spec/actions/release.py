"""Giving everything back: shared by close, every abort and the end of an ordinary request."""

from __future__ import annotations

from kvproof.spec.domain import Domain, Flag, Length
from kvproof.spec.effects import DropRow, Effect, Free, Unlock
from kvproof.spec.state import Ledger, drop_slot


def release_row(d: Domain, when: Flag, cache_protected_len: Length, kv_allocated_len: Length) -> tuple[Effect, ...]:
    """Undo the tree lock, free row [R, A) as whole pages, return the row."""
    end = d.where(when, kv_allocated_len, d.zero)
    start = d.where(when, cache_protected_len, d.zero)
    return Unlock(when), Free(start, end), DropRow(when)


def release_slot(d: Domain, s: Ledger, kv_allocated_len: Length) -> tuple[Ledger, tuple[Effect, ...]]:
    """The slot, if it is held, returns its lock, its pages up to `kv_allocated_len` and its row."""
    return drop_slot(d, s), release_row(d, s.slot_held, s.slot_cache_protected_len, kv_allocated_len)
