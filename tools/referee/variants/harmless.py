"""Right rules in other words, and other designs that keep every invariant. Each must be proved."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Guard, Step
from kvproof.spec.actions.prefill import match_key_len, restored, take, without_tail
from kvproof.spec.actions.release import release_row
from kvproof.spec.domain import (
    Domain,
    Flag,
    ceil_align,
    floor_align,
    is_aligned,
    larger,
    minus,
    one_page,
    orphan_start,
    smaller,
    window_keep_from,
)
from kvproof.spec.effects import (
    DropRow,
    End,
    EndSession,
    Forget,
    Free,
    FreeWindow,
    Lock,
    Report,
    Take,
    TakeRow,
    Unlock,
    Write,
)
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, drop_slot, end_turn, fill_len, is_live
from referee.cases import Variants
from referee.variants.changes import built_in, keeps_the_checkpoint, with_guard

HARMLESS = Variants("right rules in other words, and other right designs")


@HARMLESS.right("decode")
def decode_written_out(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The built-in decode step with every effect written out."""
    allocated = s.kv_allocated_len + d.one
    guards = (
        Guard("room for one result", d.some(s.pending == 0, d.every(d.overlap, s.pending == 1))),
        Guard("room in the row", allocated <= d.row_width),
    )
    after = s.but(kv_allocated_len=allocated, kv_committed_len=s.kv_committed_len + d.one, pending=s.pending + 1)
    effects = (
        take(d, s.kv_allocated_len, allocated),
        Write(s.kv_committed_len, s.kv_committed_len + d.one),
    )
    return Step(after, guards, effects)


@HARMLESS.right("match_slot")
def match_by_where(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The built-in match with its minimum as a case distinction."""
    key = match_key_len(d, s)
    prefix_len = d.where(key < s.slot_kv_committed_len, key, s.slot_kv_committed_len)
    after = without_tail(d, restored(d, s, prefix_len))
    return Step(
        after,
        effects=(Free(orphan_start(d, prefix_len), s.slot_kv_allocated_len),),
    )


@HARMLESS.right("match_slot")
def match_frees_only_where_there_is_a_tail(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The free of the tail is left out where the tail has no page."""
    right = built_in("match_slot", d, s, p)
    start, end = orphan_start(d, right.after.prefix_len), s.slot_kv_allocated_len
    some = start < end
    tail = Free(d.where(some, start, d.zero), d.where(some, end, d.zero))
    return dataclasses.replace(right, effects=(tail,))


@HARMLESS.right("finish")
def finish_forgets_first(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tokens behind the answer are forgotten before their pages are freed: the order does not matter."""
    right = built_in("finish", d, s, p)
    forget = tuple(e for e in right.effects if isinstance(e, Forget))
    return dataclasses.replace(right, effects=(*forget, *(e for e in right.effects if not isinstance(e, Forget))))


@HARMLESS.right("extend")
def extend_locks_first(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The prefix is locked before the row is taken, as SGLang's scheduler does it."""
    right = built_in("extend", d, s, p)
    first = tuple(e for e in right.effects if isinstance(e, Lock))
    return dataclasses.replace(right, effects=(*first, *(e for e in right.effects if not isinstance(e, Lock))))


@HARMLESS.right("extend")
def extend_takes_in_two_parts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages of a chunk are taken in two calls: its first page, then the others."""
    right = built_in("extend", d, s, p)
    first, last = d.ceil_pages(s.prefix_len), d.ceil_pages(p.seq_len)
    middle = d.where(first < last, first + 1, last)
    parts = (Take(first, middle, one_page(d)), Take(middle, last, d.tokens(last - middle)))
    effects = tuple(part for e in right.effects for part in (parts if isinstance(e, Take) else (e,)))
    return dataclasses.replace(right, effects=effects)


@HARMLESS.right("extend")
def chunks_end_on_page_boundaries(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Every chunk but the last ends on a page boundary, as SGLang cuts them."""
    return with_guard(built_in("extend", d, s, p), "whole pages", d.some(p.last, is_aligned(d, p.seq_len)))


@HARMLESS.right("prepare_round")
def reserve_whole_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round reserves up to a page boundary, or to the end of the row: never less than it needs."""
    whole = d.some(is_aligned(d, p.allocated_len), p.allocated_len == d.row_width)
    return with_guard(built_in("prepare_round", d, s, p), "whole pages", whole)


@HARMLESS.right("evict_window")
def evict_a_page_later(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One page more stays in the window: more memory, and nothing is missing."""
    right = built_in("evict_window", d, s, p)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    kept_from = floor_align(d, minus(d, p.pre_len, d.window + one_page(d) + one_page(d)))
    moved = larger(d, cursor, kept_from)
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), right.guards, (freed,))


@HARMLESS.right("evict_window")
def evict_window_by_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is evicted once a whole window can go: more memory, and fewer frees."""
    right = built_in("evict_window", d, s, p)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    is_due = cursor + d.window <= right.after.swa_evicted_seqlen
    moved = d.where(is_due, right.after.swa_evicted_seqlen, cursor)
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), right.guards, (freed,))


@HARMLESS.right("evict_window")
def evict_by_whole_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is evicted only after a page was filled: seldom, and the same in the end."""
    return with_guard(built_in("evict_window", d, s, p), "a page is full", is_aligned(d, p.pre_len))


@HARMLESS.right("close")
def close_in_another_order(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close frees the pages, returns the row and then undoes the lock."""
    right = built_in("close", d, s, p)
    order = (Free, DropRow, Unlock, EndSession)
    return dataclasses.replace(right, effects=tuple(e for kind in order for e in right.effects if isinstance(e, kind)))


@HARMLESS.right("abort_nth")
def abort_in_another_order(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort frees the pages before it undoes the lock."""
    right = built_in("abort_nth", d, s, p)
    order = (Free, Unlock, DropRow, End)
    return dataclasses.replace(right, effects=tuple(e for kind in order for e in right.effects if isinstance(e, kind)))


@HARMLESS.right("retract")
def retract_by_pending(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """What a retract keeps, told by the step in flight: without overlap it is the one that is dropped."""
    right = built_in("retract", d, s, p)
    dropped = d.every(d.no(d.overlap), s.pending >= 1)
    computed = d.where(dropped, fill_len(s) - d.one, s.kv_committed_len)
    return dataclasses.replace(right, effects=(Forget(computed),))


@HARMLESS.right("result")
def result_asks_in_another_order(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The guards of a result in the opposite order."""
    right = built_in("result", d, s, p)
    return dataclasses.replace(right, guards=tuple(reversed(right.guards)))


@HARMLESS.right("verify")
def verify_takes_in_two_parts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages of a round are taken for the bonus token first, then for the drafts."""
    right = built_in("verify", d, s, p)
    first, last = d.ceil_pages(s.kv_allocated_len), d.ceil_pages(s.kv_allocated_len + d.drafts + d.one)
    middle = d.ceil_pages(s.kv_allocated_len + d.one)
    parts = (Take(first, middle, one_page(d)), Take(middle, last, d.tokens(last - middle)))
    effects = tuple(part for e in right.effects for part in (parts if isinstance(e, Take) else (e,)))
    return dataclasses.replace(right, effects=effects)


@HARMLESS.right("check")
def check_counted_by_hand(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The terms of the memory check written out: the slot's where it owns its row, else the turn's."""
    lent_out = d.every(s.lent, is_live(d, s))
    held, live = d.every(s.slot_held, d.no(lent_out)), is_live(d, s)
    of_slot = d.ceil_pages(s.slot_kv_allocated_len) - d.floor_pages(s.slot_cache_protected_len)
    of_turn = d.ceil_pages(s.kv_allocated_len) - d.floor_pages(s.cache_protected_len)
    slot_from = larger(d, d.floor_pages(s.slot_cache_protected_len), d.ceil_pages(s.slot_swa_evicted_seqlen))
    turn_from = larger(d, d.floor_pages(s.cache_protected_len), d.ceil_pages(s.swa_evicted_seqlen))
    terms = Report(
        d.where(held, of_slot, 0),
        d.where(live, of_turn, 0),
        d.where(held, d.ceil_pages(s.slot_kv_allocated_len) - slot_from, 0),
        d.where(live, d.ceil_pages(s.kv_allocated_len) - turn_from, 0),
    )
    return Step(s, effects=(terms,))


@HARMLESS.right("insert")
def insert_a_prompt_only_with_a_new_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prompt that is in brings at least one whole page to the tree, or is not inserted: there is nothing to share."""
    grows = d.floor_pages(s.cache_protected_len) < d.floor_pages(p.key_len)
    return with_guard(built_in("insert", d, s, p), "a page is new", d.some(s.phase == PREFILL, grows))


@HARMLESS.right("finish_plain")
def finish_shares_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A finished request gives nothing to the tree: a smaller cache, and every page comes back."""
    return with_guard(built_in("finish_plain", d, s, p), "nothing is inserted", d.no(p.inserted))


def queued_and_not_ahead(d: Domain, s: Ledger) -> Flag:
    ahead = d.every(s.slot_held, d.no(s.slot_kv_committed_len <= s.checkpoint_len))
    return d.every(d.no(d.some(s.phase == PREFILL, s.phase == RUNNING)), s.phase == WAITING, d.no(ahead))


@HARMLESS.right("abort_queued", applies=queued_and_not_ahead)
def abort_of_who_is_not_ahead(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The condition of a queued abort in other words."""
    return built_in("abort_queued", d, s, p)


def same_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return built_in("match_slot", d, s, p)


@HARMLESS.right("retract", also={"match_slot": same_match})
def two_rules_as_they_are(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Two rules are replaced by themselves."""
    return ACTIONS["retract"].run(d, s, p)


@HARMLESS.right("arrive")
def arrive_asks_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The arrival of a request asks for its one token in two ways."""
    return with_guard(built_in("arrive", d, s, p), "an input", d.no(p.origin_len == d.zero))


@HARMLESS.right("retract_plain")
def retract_in_another_order(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request frees its pages before it undoes its lock."""
    right = built_in("retract_plain", d, s, p)
    order = (Free, Unlock, DropRow)
    return dataclasses.replace(right, effects=tuple(e for kind in order for e in right.effects if isinstance(e, kind)))


@HARMLESS.right("extend")
def row_is_taken_by_phase(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn takes a row if its session has none: the slot's is the one that is lent."""
    right = built_in("extend", d, s, p)
    first = d.every(s.phase == WAITING, d.no(s.slot_held))
    return dataclasses.replace(
        right, effects=tuple(TakeRow(first) if isinstance(e, TakeRow) else e for e in right.effects)
    )


@HARMLESS.right("prepare_round")
def reserve_exactly(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Just what the round may write is reserved."""
    needed = s.kv_committed_len + d.one + d.drafts + d.where(s.pending == 0, d.zero, d.drafts)
    exactly = p.allocated_len == larger(d, s.kv_allocated_len, needed)
    return with_guard(built_in("prepare_round", d, s, p), "no more than is needed", exactly)


@HARMLESS.right("finish")
def finish_waits_for_results(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn ends once the step in flight is in."""
    return with_guard(built_in("finish", d, s, p), "all results are in", s.pending == 0)


@HARMLESS.right("evict_window")
def evict_before_the_claim(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is evicted up to the token before the one that is claimed, as SGLang's decode does."""
    before = p.pre_len == minus(d, s.kv_committed_len, d.one)
    return with_guard(built_in("evict_window", d, s, p), "all but the claimed token", before)


@HARMLESS.right("finish")
def finish_evicts_the_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn that ends evicts what the slot's window does not reach."""
    right = built_in("finish", d, s, p)
    slot = right.after
    cursor = larger(d, slot.slot_swa_evicted_seqlen, slot.slot_cache_protected_len)
    moved = larger(d, cursor, window_keep_from(d, slot.slot_kv_committed_len))
    first, last = (d.where(d.windowed, pages, 0) for pages in (d.ceil_pages(cursor), d.floor_pages(moved)))
    after = slot.but(slot_swa_evicted_seqlen=d.where(d.windowed, moved, slot.slot_swa_evicted_seqlen))
    return Step(after, right.guards, (*right.effects[:2], FreeWindow(first, last), *right.effects[2:]))


@HARMLESS.right("defer_close")
def close_aborts_at_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close aborts the turn in flight and ends the session."""
    live = is_live(d, s)
    start = d.where(live, s.cache_protected_len, s.slot_cache_protected_len)
    end = d.where(live, s.kv_allocated_len, s.slot_kv_allocated_len)
    none = drop_slot(d, end_turn(d, s))
    after = none.but(inflight=d.false, is_open=d.false, closing=d.false, checkpoint_len=d.zero)
    release = release_row(d, d.some(live, s.slot_held), start, end)
    return Step(after, effects=(*release, End(d.true), EndSession()))


@HARMLESS.right("evict_window")
def eviction_with_more_slack(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One page of slack more is kept."""
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, window_keep_from(d, minus(d, p.pre_len, one_page(d))))
    right = built_in("evict_window", d, s, p)
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), right.guards, (freed,))


@HARMLESS.right("abort_nth")
def abort_keeps_what_has_its_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted turn leaves the checkpoint's KV in the slot if the window of its next token is there, else nothing."""
    length = smaller(d, s.kv_committed_len, s.checkpoint_len)
    evicted = ceil_align(d, s.swa_evicted_seqlen)
    has_window = d.some(evicted <= s.cache_protected_len, evicted + d.window <= length)
    return keeps_the_checkpoint(d, s, s, has_window)
