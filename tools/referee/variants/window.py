"""The cursor of the sliding window: not lowered, lowered too far, or moved without a free."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.prefill import restored
from kvproof.spec.domain import Domain, floor_align, larger, minus, orphan_start, smaller, window_keep_from
from kvproof.spec.effects import Forget, Free, FreeWindow
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, keeps_the_checkpoint, with_effects, with_fields, without

WINDOW = Variants("the cursor of the sliding window")


@WINDOW.wrong("match_slot", must="I9")
def match_keeps_the_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The cursor stays above what is restored (sglang #22900): pages taken anew there are never evicted."""
    return with_fields(built_in("match_slot", d, s, p), swa_evicted_seqlen=s.slot_swa_evicted_seqlen)


@WINDOW.wrong("finish", must="I9")
def finish_keeps_the_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot's cursor stays above the trimmed answer (sglang #22900)."""
    return with_fields(built_in("finish", d, s, p), slot_swa_evicted_seqlen=s.swa_evicted_seqlen)


@WINDOW.wrong("finish", must="I10")
def finish_resets_the_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot forgets what was evicted: its close frees window pages that others have by now."""
    return with_fields(built_in("finish", d, s, p), slot_swa_evicted_seqlen=d.zero)


@WINDOW.wrong("retract", must="I10")
def retract_resets_the_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract forgets what was evicted: the same window pages are freed again."""
    return with_fields(built_in("retract", d, s, p), slot_swa_evicted_seqlen=d.zero)


@WINDOW.wrong("match_slot", must="I10")
def match_resets_the_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A restored turn starts with a cursor of zero: it evicts pages that are gone."""
    right = built_in("match_slot", d, s, p)
    return with_fields(right, swa_evicted_seqlen=d.zero, slot_swa_evicted_seqlen=d.zero)


@WINDOW.wrong("evict_window", must="I10")
def cursor_without_a_free(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The cursor moves and nothing is freed: these window pages are lost."""
    return without(built_in("evict_window", d, s, p), FreeWindow)


@WINDOW.wrong("evict_window", must="I10")
def free_without_a_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Window pages are freed and the cursor stays: they are freed again at the next step."""
    return with_fields(built_in("evict_window", d, s, p), swa_evicted_seqlen=s.swa_evicted_seqlen)


@WINDOW.wrong("evict_window", must="I10")
def eviction_ignores_the_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The cursor starts below R: window pages of the tree are freed, which other requests read."""
    right = without(built_in("evict_window", d, s, p), FreeWindow)
    moved = larger(d, s.swa_evicted_seqlen, window_keep_from(d, p.pre_len))
    freed = FreeWindow(d.ceil_pages(s.swa_evicted_seqlen), d.floor_pages(moved))
    return with_effects(with_fields(right, swa_evicted_seqlen=moved), freed)


@WINDOW.wrong("evict_window", must="I10")
def evict_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The same window pages are freed twice: two rows get them."""
    right = built_in("evict_window", d, s, p)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    again = FreeWindow(d.ceil_pages(cursor), d.floor_pages(right.after.swa_evicted_seqlen))
    return with_effects(right, again)


@WINDOW.wrong("abort_nth", must="X3, I9")
def abort_leaves_a_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted session keeps its window cursor without a slot: its next row is not evicted up to there."""
    return with_fields(built_in("abort_nth", d, s, p), slot_swa_evicted_seqlen=s.slot_swa_evicted_seqlen)


@WINDOW.wrong("retract_plain", must="X3, I9")
def retracted_request_keeps_its_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request keeps its cursor though it gave back its row: its new row is never evicted below it."""
    return with_fields(built_in("retract_plain", d, s, p), swa_evicted_seqlen=s.swa_evicted_seqlen)


@WINDOW.wrong("evict_window", must="I9: the window of a session's next token is there")
def eviction_without_slack(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The page of slack is evicted, too: a turn that is retracted goes back to a token whose window is gone."""
    right = without(built_in("evict_window", d, s, p), FreeWindow)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, floor_align(d, minus(d, p.pre_len, d.window)))
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return with_effects(with_fields(right, swa_evicted_seqlen=moved), freed)


@WINDOW.wrong("abort_nth", must="I9: the window of a session's next token is there")
def abort_keeps_what_has_no_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted turn leaves the checkpoint's KV in the slot. It evicted the window there: the next turn reads freed pages."""
    return keeps_the_checkpoint(d, s, s, d.true)


@WINDOW.wrong("abort_retracted", must="I9: the window of a session's next token is there")
def abort_in_the_queue_keeps_what_has_no_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted turn is aborted in the queue and leaves KV of the checkpoint: its window is gone there, too."""
    return keeps_the_checkpoint(d, s, restored(d, s, s.prefix_len), d.true)


@WINDOW.wrong("retract", must="I9: the window of a session's next token is there")
def retract_keeps_only_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract cuts the slot back to the checkpoint. It had evicted the window there: the turn reads freed pages."""
    right = built_in("retract", d, s, p)
    kept = smaller(d, s.kv_committed_len, larger(d, s.checkpoint_len, right.after.slot_cache_protected_len))
    shorter = with_fields(
        right,
        slot_kv_committed_len=kept,
        slot_kv_allocated_len=kept,
        slot_swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, kept),
    )
    return with_effects(shorter, Free(orphan_start(d, kept), s.kv_allocated_len), Forget(kept))
