"""Rows that are kept, returned twice or shared; tree locks that are taken or undone too often."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, minus
from kvproof.spec.effects import DropRow, Free, Lock, Share, Take, TakeRow, Unlock, Write
from kvproof.spec.faults.fault import in_order, with_parts
from kvproof.spec.state import WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, with_fields, without

ROWS_AND_LOCKS = Variants("rows and tree locks")


@ROWS_AND_LOCKS.wrong("extend", must="I5")
def every_extend_takes_a_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session's next turn takes a row of its own: the slot's row is lost."""
    right = built_in("extend", d, s, p)
    effects = tuple(TakeRow(s.phase == WAITING) if isinstance(e, TakeRow) else e for e in right.effects)
    return dataclasses.replace(right, effects=effects)


@ROWS_AND_LOCKS.wrong("finish_plain", must="I16")
def finish_keeps_its_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request never returns its row: the server stops after as many requests as it has rows."""
    return without(built_in("finish_plain", d, s, p), DropRow)


@ROWS_AND_LOCKS.wrong("retract_plain", must="I16")
def retract_keeps_its_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request keeps its row and takes another one later."""
    return without(built_in("retract_plain", d, s, p), DropRow)


@ROWS_AND_LOCKS.wrong("close", must="I16")
def close_returns_its_row_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The row goes back twice: two requests get it."""
    return with_effects(built_in("close", d, s, p), DropRow(s.slot_held))


@ROWS_AND_LOCKS.wrong("finish", must="I5, I16")
def finish_returns_the_slots_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session's finish returns the row that its slot still names: another request writes into it."""
    return with_effects(built_in("finish", d, s, p), DropRow(d.true))


@ROWS_AND_LOCKS.wrong("abort_queued", must="I5, I16")
def queued_abort_returns_a_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The abort of a turn that has no row returns one: it is the slot's."""
    return with_effects(built_in("abort_queued", d, s, p), DropRow(s.slot_held))


@ROWS_AND_LOCKS.wrong("match_slot", must="I5")
def match_does_not_borrow(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A restored turn is not marked as on the slot's row: it takes a second one."""
    return with_fields(built_in("match_slot", d, s, p), lent=d.false)


@ROWS_AND_LOCKS.wrong("extend", must="I11")
def extend_locks_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The matched prefix is not locked: the tree evicts it while the request reads it."""
    return without(built_in("extend", d, s, p), Lock)


@ROWS_AND_LOCKS.wrong("extend", must="I11")
def every_chunk_locks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each chunk locks the prefix, one unlock undoes one: it can never be evicted again."""
    right = built_in("extend", d, s, p)
    return with_parts(right, Lock, when=d.true)


@ROWS_AND_LOCKS.wrong("close", must="I11")
def close_keeps_its_lock(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A closed session keeps its tree lock: the prefix stays for ever."""
    return without(built_in("close", d, s, p), Unlock)


@ROWS_AND_LOCKS.wrong("abort_nth", must="I11")
def abort_unlocks_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort undoes a lock of somebody else: the tree evicts what that one reads."""
    return with_effects(built_in("abort_nth", d, s, p), Unlock(d.true))


@ROWS_AND_LOCKS.wrong("finish", must="I11")
def finish_unlocks_the_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A finish undoes the lock although the slot keeps the prefix: it is evicted between two turns."""
    return with_effects(built_in("finish", d, s, p), Unlock(d.true))


@ROWS_AND_LOCKS.wrong("match_slot", must="I11")
def match_locks_again(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each match of a rejected turn locks once more (sglang #20476)."""
    return with_effects(built_in("match_slot", d, s, p), Lock(d.true, d.floor_pages(s.slot_cache_protected_len)))


@ROWS_AND_LOCKS.wrong("extend", must="what is shared is locked when pages are taken")
def extend_locks_too_late(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The prefix is locked after the pages were taken: they may have been evicted from it."""
    return in_order(built_in("extend", d, s, p), Share, Take, Write, Lock)


@ROWS_AND_LOCKS.wrong("extend", must="the lock goes through all that is shared")
def extend_locks_a_part(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The lock leaves the last page of the prefix out: the tree evicts it while the request reads it."""
    return with_parts(built_in("extend", d, s, p), Lock, pages=d.floor_pages(minus(d, s.prefix_len, d.one)))


@ROWS_AND_LOCKS.wrong("extend", must="what is shared is locked when pages are taken")
def chunk_is_unlocked_while_pages_are_taken(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each chunk after the first undoes the lock, takes its pages, and locks again: in between the prefix is evicted."""
    right = built_in("extend", d, s, p)
    again = d.no(s.phase == WAITING)
    lock = Lock(again, d.floor_pages(s.cache_protected_len))
    return dataclasses.replace(right, effects=(Unlock(again), *right.effects, lock))


@ROWS_AND_LOCKS.right("extend")
def extend_shares_and_then_locks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Nothing is evicted between the two, because no page is taken."""
    return in_order(built_in("extend", d, s, p), Share, Lock, Take, Write)


@ROWS_AND_LOCKS.right("abort_first")
def row_is_returned_before_the_lock(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Row, pages and lock all go back in one step, in which no page is taken."""
    return in_order(built_in("abort_first", d, s, p), Free, DropRow, Unlock)
