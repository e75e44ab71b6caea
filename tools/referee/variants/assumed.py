"""Guards that assume what the rule has to show: where they do not hold, a server is stuck or does something unproved."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.release import release_row
from kvproof.spec.domain import Domain, is_aligned
from kvproof.spec.effects import Free
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, with_guard, without

ASSUMED = Variants("a guard assumes what the rule must show")


@ASSUMED.wrong("match_slot", must="I18: every slot can be matched")
def match_only_on_page_boundaries(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail is freed from inside a page, and only turns that end on a page boundary may be matched: others wait for ever."""
    right = without(built_in("match_slot", d, s, p), Free)
    tail = Free(right.after.prefix_len, s.slot_kv_allocated_len)
    return with_guard(with_effects(right, tail), "the prefix is whole pages", is_aligned(d, right.after.prefix_len))


@ASSUMED.wrong("finish", must="I18: every turn can end")
def finish_only_without_a_tail(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No tail is freed, and only a turn without one may finish: an answer with a stop word in its middle cannot end."""
    right = without(built_in("finish", d, s, p), Free)
    ends_there = d.ceil_pages(s.kv_allocated_len) <= d.ceil_pages(s.origin_len + p.finished_len)
    return with_guard(right, "there is no tail", ends_there)


@ASSUMED.wrong("abort_nth", must="I18: every turn can be aborted")
def abort_only_what_took_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Only the slot's pages are freed, and only a turn that took no page may be aborted: others run on."""
    right = built_in("abort_nth", d, s, p)
    of_slot = release_row(d, s.slot_held, s.slot_cache_protected_len, s.slot_kv_allocated_len)
    took_none = d.ceil_pages(s.kv_allocated_len) == d.ceil_pages(s.slot_kv_allocated_len)
    return with_guard(dataclasses.replace(right, effects=of_slot), "the turn took no page", took_none)


@ASSUMED.wrong("close", must="I18: every session can be closed")
def close_only_what_shares_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close frees the whole row, and only a session without a page of the tree may be closed: others stay for ever."""
    return with_guard(built_in("close", d, s, p), "nothing is shared", s.slot_cache_protected_len == d.zero)


@ASSUMED.wrong("decode", must="I18: every row can be filled")
def decode_only_inside_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A step that needs a new page is never allowed unless pages hold one token: every answer ends at a page boundary."""
    inside = d.no(is_aligned(d, s.kv_allocated_len))
    single = d.tokens(d.floor_pages(d.zero) + 1) == d.one
    return with_guard(built_in("decode", d, s, p), "no page is needed", d.some(inside, single))


@ASSUMED.wrong("evict_window", must="I18: a window can be evicted")
def evict_only_on_short_rows(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is evicted only while the turn has four tokens: a longer one keeps every window page."""
    four = d.one + d.one + d.one + d.one
    return with_guard(built_in("evict_window", d, s, p), "the turn is short", s.kv_committed_len <= four)


@ASSUMED.wrong("verify", must="I18: a rejected draft can be verified")
def verify_only_what_is_accepted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No tail is freed, and only rounds whose drafts are all accepted are allowed: one rejected draft blocks the turn."""
    right = without(built_in("verify", d, s, p), Free)
    return with_guard(right, "every draft is accepted", p.tokens == d.drafts + d.one)
