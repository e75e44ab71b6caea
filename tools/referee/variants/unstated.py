"""Rules that leave out what they ask of themselves: a guard, or the condition that the rule has to establish."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, larger
from kvproof.spec.effects import FreeWindow, Take
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, without, without_guard

UNSTATED = Variants("what a rule asks of itself is left out")


def not_charged(step: Step, d: Domain) -> Step:
    """The step, with pages that the admission was charged nothing for."""
    effects = tuple(dataclasses.replace(e, charge=d.zero) if isinstance(e, Take) else e for e in step.effects)
    return dataclasses.replace(step, effects=effects)


@UNSTATED.wrong("evict_window", must="I9")
def evict_into_the_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Everything before `pre_len` leaves the window pool: the next token attends to window pages that were freed."""
    right = without(built_in("evict_window", d, s, p), FreeWindow)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, d.tokens(d.floor_pages(p.pre_len)))
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(right.after.but(swa_evicted_seqlen=moved), right.guards, (freed,))


@UNSTATED.wrong("evict_window", must="I9")
def evict_half_of_the_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is counted one page short, and one token further: its first tokens are freed while it reaches them."""
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    reached = d.where(d.window <= p.pre_len, p.pre_len - d.where(d.window <= p.pre_len, d.window, d.zero), d.zero)
    moved = larger(d, cursor, d.tokens(d.ceil_pages(reached)))
    fits = d.where(moved <= s.kv_committed_len, moved, cursor)
    guards = built_in("evict_window", d, s, p).guards
    return Step(s.but(swa_evicted_seqlen=fits), guards, (FreeWindow(d.ceil_pages(cursor), d.floor_pages(fits)),))


@UNSTATED.wrong("evict_window", must="I9")
def evict_before_the_kv_is_there(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window is counted from tokens that have no KV yet: the cursor runs ahead of the turn."""
    return without_guard(built_in("evict_window", d, s, p), "only what has its KV")


@UNSTATED.wrong("chunk_result", must="I22")
def chunk_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk in the middle of the input appends a token (sglang-jax #994): the user reads an answer to half a prompt."""
    right = built_in("chunk_result", d, s, p)
    return with_fields(right, output_len=s.output_len + d.one)


@UNSTATED.wrong("extend", must="I18")
def extend_is_not_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No charge is stated for a chunk: nobody compares it with what the allocator takes, and a batch may fail half-way."""
    return not_charged(built_in("extend", d, s, p), d)


@UNSTATED.wrong("decode", must="I18")
def decode_is_not_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No charge is stated for a decode step: it may take a page that the admission did not count."""
    return not_charged(built_in("decode", d, s, p), d)


@UNSTATED.wrong("prepare_round", must="I18")
def round_is_not_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No charge is stated for a round of drafts: a reserve of any size passes the admission."""
    return not_charged(built_in("prepare_round", d, s, p), d)


@UNSTATED.wrong("verify", must="I18")
def verify_is_not_charged(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No charge is stated for the pages of the drafts: they may not be there in the middle of a batch."""
    return not_charged(built_in("verify", d, s, p), d)


@UNSTATED.wrong("create", must="I15")
def admit_while_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session that is being closed admits one more turn: clients can keep it open for ever."""
    return without_guard(built_in("create", d, s, p), "not closing")


@UNSTATED.wrong("create", must="X2")
def turn_rewrites_the_past(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn may be shorter than its session: the KV of another text is handed on to it."""
    return without_guard(built_in("create", d, s, p), "only appends")


@UNSTATED.wrong("match_tree", must="I12")
def match_half_a_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tree may match inside a page: the request then writes into a page that the tree owns."""
    return without_guard(built_in("match_tree", d, s, p), "whole pages")


@UNSTATED.wrong("match_tree", must="X3")
def match_every_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No token is kept back: nothing is left to compute a logit from, and no answer can begin."""
    return without_guard(built_in("match_tree", d, s, p), "one token is left")


@UNSTATED.wrong("match_tree", must="X3")
def chunk_cache_matches(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk cache, which shares nothing, matches pages: they are of a tree that does not exist."""
    return without_guard(built_in("match_tree", d, s, p), "chunk cache")


@UNSTATED.wrong("extend", must="X3")
def prefill_beyond_the_input(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk may end behind the input: KV of tokens that nobody said."""
    return without_guard(built_in("extend", d, s, p), "within the input")


@UNSTATED.wrong("extend", must="I22")
def last_chunk_by_the_flag(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Any chunk may call itself the last (sglang-jax #994): decoding starts in the middle of the prompt."""
    return without_guard(built_in("extend", d, s, p), "the last chunk")


@UNSTATED.wrong("extend", must="I3")
def prefill_beyond_the_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk may be longer than its row: it writes into the page table of the next row."""
    return without_guard(built_in("extend", d, s, p), "wide enough")


@UNSTATED.wrong("decode", must="I3")
def decode_beyond_the_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A decode step may run over the end of its row: it writes into the page table of the next row."""
    return without_guard(built_in("decode", d, s, p), "wide enough")


@UNSTATED.wrong("decode", must="I22, X3")
def three_steps_in_flight(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Steps are launched without end before a result is known: tokens are claimed that nothing was sampled for."""
    return without_guard(built_in("decode", d, s, p), "more than one result")
