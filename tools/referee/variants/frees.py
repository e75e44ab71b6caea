"""Frees of too much, of too little, twice, or inside a page."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.release import release_row, release_slot
from kvproof.spec.domain import Domain, floor_align, larger, orphan_start
from kvproof.spec.effects import Forget, Free, FreeByLoc, Take
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, without

FREES = Variants("frees of too much, too little, twice")


@FREES.wrong("match_slot", must="I6, I7")
def match_frees_the_last_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail is freed from the start of the page that holds kept tokens (sglang #22862): they are overwritten."""
    right = without(built_in("match_slot", d, s, p), Free)
    return with_effects(right, Free(floor_align(d, right.after.prefix_len), s.slot_kv_allocated_len))


@FREES.wrong("match_slot", must="I4")
def match_frees_inside_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail is freed from the middle of a page (sglang #22862): the allocator takes the whole page."""
    right = without(built_in("match_slot", d, s, p), Free)
    return with_effects(right, Free(right.after.prefix_len, s.slot_kv_allocated_len))


@FREES.wrong("match_slot", must="I7")
def match_frees_up_to_what_is_committed(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Only committed tokens are freed: pages that speculation reserved are lost."""
    right = without(built_in("match_slot", d, s, p), Free)
    return with_effects(right, Free(orphan_start(d, right.after.prefix_len), s.slot_kv_committed_len))


@FREES.wrong("finish", must="I7")
def finish_frees_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Tokens behind the stop word keep their pages, and the slot forgets them: each long answer leaks."""
    return without(built_in("finish", d, s, p), Free)


@FREES.wrong("finish", must="I4")
def finish_frees_twice(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail is freed twice: two requests then get the same page."""
    right = built_in("finish", d, s, p)
    return with_effects(right, Free(orphan_start(d, s.origin_len + p.finished_len), s.kv_allocated_len))


@FREES.wrong("finish", must="I4")
def finish_forgets_the_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail is freed up to what is committed: pages reserved for drafts are lost."""
    target = s.origin_len + p.finished_len
    right = without(built_in("finish", d, s, p), Free, Forget)
    return with_effects(right, Free(orphan_start(d, target), s.kv_committed_len), Forget(target))


@FREES.wrong("finish", must="I6")
def finish_frees_everything(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A finish frees the row from R on although the slot keeps it: the next turn reads pages of others."""
    right = without(built_in("finish", d, s, p), Free)
    start = d.where(s.slot_held, s.slot_cache_protected_len, s.cache_protected_len)
    return with_effects(right, Free(start, s.kv_allocated_len))


@FREES.wrong("close", must="I1")
def close_frees_the_trees_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close frees the whole row, pages of the tree too: other requests still read them."""
    released, _ = release_slot(d, s, s.slot_kv_allocated_len)
    after = released.but(is_open=d.false, closing=d.false, checkpoint_len=d.zero, success_len=d.zero)
    return Step(after, effects=release_row(d, s.slot_held, d.zero, s.slot_kv_allocated_len))


@FREES.wrong("close", must="I16")
def close_frees_committed_only(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close frees up to what is committed: the slot's other pages are lost."""
    released, _ = release_slot(d, s, s.slot_kv_allocated_len)
    after = released.but(is_open=d.false, closing=d.false, checkpoint_len=d.zero, success_len=d.zero)
    return Step(after, effects=release_row(d, s.slot_held, s.slot_cache_protected_len, s.slot_kv_committed_len))


@FREES.wrong("abort_nth", must="I16")
def abort_frees_the_slot_only(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort frees up to what the slot holds: what the turn took behind it is lost."""
    right = built_in("abort_nth", d, s, p)
    return dataclasses.replace(
        right, effects=release_row(d, s.slot_held, s.slot_cache_protected_len, s.slot_kv_allocated_len)
    )


@FREES.wrong("abort_first", must="I16")
def abort_frees_from_the_prefix(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort frees from the last chunk on: earlier chunks are lost."""
    right = built_in("abort_first", d, s, p)
    start = larger(d, s.cache_protected_len, floor_align(d, s.prefix_len))
    return dataclasses.replace(right, effects=release_row(d, d.true, start, s.kv_allocated_len))


@FREES.wrong("abort_queued", must="I16")
def queued_abort_frees_the_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn that never ran frees the slot's pages: the session still names pages, which are others' now."""
    return with_effects(
        built_in("abort_queued", d, s, p), FreeByLoc(s.slot_cache_protected_len, s.slot_kv_allocated_len)
    )


@FREES.wrong("retract", must="I16")
def retract_frees_its_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract frees its last page beside the release (sglang #12224): the slot frees it again."""
    return with_effects(built_in("retract", d, s, p), FreeByLoc(floor_align(d, s.kv_committed_len), s.kv_allocated_len))


@FREES.wrong("retract_plain", must="I16")
def retract_keeps_its_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request returns its row and not its pages: the retract frees nothing, and they are lost."""
    return without(built_in("retract_plain", d, s, p), Free)


@FREES.wrong("verify", must="I1")
def verify_keeps_the_rejected_tail(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Pages of rejected drafts are not freed: each round leaks."""
    return without(built_in("verify", d, s, p), Free)


@FREES.wrong("verify", must="I4, I6")
def verify_frees_an_accepted_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The rejected tail is freed from the page of the last accepted token: that token's KV is lost."""
    right = without(built_in("verify", d, s, p), Free)
    room = s.kv_allocated_len + d.drafts + d.one
    return with_effects(right, Free(floor_align(d, s.kv_committed_len + p.tokens), room))


@FREES.wrong("evict_window", must="I4, I6")
def eviction_frees_full_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """What leaves the window is freed in the full pool, too: its layers still attend to it."""
    right = built_in("evict_window", d, s, p)
    return with_effects(right, Free(s.cache_protected_len, right.after.swa_evicted_seqlen))


@FREES.wrong("extend", must="I7")
def extend_takes_its_first_page_again(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk takes a page for the tokens that share one with the last chunk: the old page is lost."""
    right = built_in("extend", d, s, p)
    taken = Take(d.floor_pages(s.prefix_len), d.ceil_pages(p.seq_len), p.seq_len + d.tokens(d.floor_pages(d.zero) + 1))
    effects = tuple(taken if isinstance(e, Take) else e for e in right.effects)
    return dataclasses.replace(right, effects=effects)
