"""Rules that do at an event what is none of its work, or not what the event says: each of its own effects is right."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.finish import queued_again
from kvproof.spec.actions.prefill import match_key_len, take
from kvproof.spec.actions.release import release_row
from kvproof.spec.domain import Domain, floor_align, larger, minus, one_page, orphan_start
from kvproof.spec.effects import AskClose, Begin, EndSession, Free, FreeWindow, Generate, Insert, Succeed, Write
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, fill_len
from referee.cases import Variants
from referee.variants.changes import built_in, sixteen_pages, with_effects, with_fields

OTHER_EVENTS = Variants("what is not the event's")


@OTHER_EVENTS.wrong("arrive", must="I12: no more is reused than a match found")
def arrive_with_a_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request arrives with a prefix that nobody matched: it shares pages that may hold another prompt's KV."""
    prefix_len = floor_align(d, minus(d, p.origin_len, d.one))
    return with_fields(
        built_in("arrive", d, s, p), matched=d.true, prefix_len=prefix_len, cache_protected_len=prefix_len
    )


@OTHER_EVENTS.wrong("match_tree", must="I12: no more is reused than a match found")
def match_rounds_up(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Once a page matches, the whole prompt counts as matched: the rest of it is read from foreign pages."""
    some = d.every(d.tree, one_page(d) <= p.matched_len)
    prefix_len = d.where(some, floor_align(d, match_key_len(d, s)), p.matched_len)
    return with_fields(built_in("match_tree", d, s, p), prefix_len=prefix_len, cache_protected_len=prefix_len)


@OTHER_EVENTS.wrong("retract_plain", must="I12: no more is reused than a match found")
def retract_keeps_its_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request keeps its match without a lock: the tree evicts the pages before it runs again."""
    return with_fields(
        built_in("retract_plain", d, s, p),
        matched=d.true,
        prefix_len=s.cache_protected_len,
        cache_protected_len=s.cache_protected_len,
    )


@OTHER_EVENTS.wrong("match_tree", must="I3: no length is below 0")
def match_below_zero(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A match of sixteen pages gives a prefix of minus one page: the row begins before its first entry."""
    prefix_len = d.where(sixteen_pages(d) <= p.matched_len, d.zero - one_page(d), p.matched_len)
    return with_fields(built_in("match_tree", d, s, p), prefix_len=prefix_len, cache_protected_len=prefix_len)


@OTHER_EVENTS.wrong("stash", must="I8: only what runs has its KV computed")
def stash_computes_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Between chunks one token more counts as computed, which no forward ran."""
    next_len = s.kv_committed_len + d.one
    more = d.every(next_len < fill_len(s), next_len <= d.row_width)
    end = d.where(more, next_len, s.kv_committed_len)
    after = s.but(prefix_len=end, kv_committed_len=end, kv_allocated_len=end)
    return Step(after, (), (take(d, s.kv_allocated_len, end), Write(s.kv_committed_len, end)))


@OTHER_EVENTS.wrong("extend", must="I22: the tokens of the event")
def chunk_that_looks_final(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk that ends one token before the input counts as the whole input (sglang-jax #994): nobody ran that token."""
    near = d.every(d.no(p.last), p.seq_len + d.one == fill_len(s), fill_len(s) <= d.row_width)
    whole = SimpleNamespace(seq_len=d.where(near, fill_len(s), p.seq_len), last=d.some(near, p.last))
    return built_in("extend", d, s, whole)


@OTHER_EVENTS.wrong("verify", must="I1: each draft has a page")
def verify_takes_for_the_accepted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Pages are taken for the accepted drafts only: the rejected ones were written behind the row's last page."""
    end = s.kv_committed_len + p.tokens
    right = built_in("verify", d, s, p)
    effects = (Generate(p.tokens), take(d, s.kv_allocated_len, end), Write(s.kv_committed_len, end))
    return dataclasses.replace(right, effects=effects)


@OTHER_EVENTS.wrong("result", must="I1: each draft of a round in flight has a page")
def result_frees_the_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result gives back what is reserved behind it, while the next round writes its drafts there."""
    right = built_in("result", d, s, p)
    kept = larger(d, right.after.kv_committed_len, s.slot_kv_allocated_len)
    end = d.where(d.every(d.spec_v2, kept <= s.kv_allocated_len), kept, s.kv_allocated_len)
    return with_effects(with_fields(right, kv_allocated_len=end), Free(orphan_start(d, end), s.kv_allocated_len))


@OTHER_EVENTS.wrong("evict_window", must="I1: each draft of a round in flight has a page")
def eviction_frees_the_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The eviction of the window gives back what a round in flight writes."""
    kept = larger(d, s.kv_committed_len, s.slot_kv_allocated_len)
    some = d.every(d.spec_v2, s.phase == RUNNING, kept <= s.kv_allocated_len)
    end = d.where(some, kept, s.kv_allocated_len)
    right = with_fields(built_in("evict_window", d, s, p), kv_allocated_len=end)
    return with_effects(right, Free(orphan_start(d, end), s.kv_allocated_len))


@OTHER_EVENTS.wrong("abort_nth", must="I14: only a turn that finishes is kept")
def abort_with_success(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted turn is the session's checkpoint: the next turn must build on half an answer."""
    right = with_fields(built_in("abort_nth", d, s, p), checkpoint_len=fill_len(s))
    return dataclasses.replace(right, effects=(Succeed(fill_len(s)), *right.effects))


@OTHER_EVENTS.wrong("finish", must="I14: a turn that was cut short is not kept")
def finish_of_a_cut_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn whose input was cut to one token finishes with success: the session's history is that token."""
    right = built_in("finish", d, s, p)
    shared = s.cache_protected_len <= s.origin_len + p.finished_len
    cut = dataclasses.replace(right.guards[2], holds=d.some(d.no(s.pre_aborted), shared))
    return dataclasses.replace(right, guards=(*right.guards[:2], cut))


@OTHER_EVENTS.wrong("abort_nth", must="I15: only a close ends a session")
def abort_ends_the_history(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort ends the session's history and forgets that a close waits: the session stays for ever, and empty."""
    right = with_fields(built_in("abort_nth", d, s, p), checkpoint_len=d.zero, closing=d.false)
    return with_effects(right, EndSession())


@OTHER_EVENTS.wrong("abort_first", must="I15: only a close ends a session")
def abort_closes_the_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The abort of a session's first turn closes it: the client's next turn finds no session."""
    is_kept = d.some(s.closing, d.one <= s.checkpoint_len)
    return with_fields(built_in("abort_first", d, s, p), is_open=is_kept)


@OTHER_EVENTS.wrong("retract", must="I15: only a client closes a session")
def retract_asks_for_a_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Pool pressure closes sessions."""
    return with_effects(with_fields(built_in("retract", d, s, p), closing=d.true), AskClose())


@OTHER_EVENTS.wrong("close", must="I15: a close ends an idle session")
def close_keeps_long_sessions(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session of sixteen pages is open after its close, and empty."""
    return with_fields(built_in("close", d, s, p), is_open=sixteen_pages(d) <= s.checkpoint_len)


@OTHER_EVENTS.wrong("abort_queued", must="I15: a turn that is aborted is over")
def queued_abort_does_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The abort of a queued turn is dropped: it runs to its end for a client that has left."""
    return Step(s)


@OTHER_EVENTS.wrong("finish_plain", must="I15: a turn that ends is over")
def finish_begins_again(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request that is aborted between chunks is queued again as a new one."""
    right = built_in("finish_plain", d, s, p)
    again = d.every(s.phase == PREFILL, s.output_len == d.zero)
    origin_len = d.where(again, s.origin_len, d.zero)
    queued = with_fields(right, plain=again, phase=d.where(again, WAITING, NONE), origin_len=origin_len)
    return with_effects(queued, Begin(origin_len, d.false))


@OTHER_EVENTS.wrong("decode", must="I18: a decode step is launched")
def decode_stops_when_long(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """From sixteen pages on a decode step does nothing: no token comes any more."""
    stops = sixteen_pages(d) <= s.kv_committed_len
    committed = d.where(stops, s.kv_committed_len, s.kv_committed_len + d.one)
    allocated = d.where(stops, s.kv_allocated_len, s.kv_allocated_len + d.one)
    after = s.but(
        kv_committed_len=committed, kv_allocated_len=allocated, pending=d.where(stops, s.pending, s.pending + 1)
    )
    effects = (take(d, s.kv_allocated_len, allocated), Write(s.kv_committed_len, committed))
    return Step(after, built_in("decode", d, s, p).guards, effects)


@OTHER_EVENTS.wrong("retract_plain", must="I18: a turn that is retracted gives way")
def retract_spares_the_long(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request of sixteen pages is not retracted, though its event says so: a full pool stays full."""
    stays = sixteen_pages(d) <= s.kv_committed_len
    queued = vars(queued_again(d, s))
    after = s.but(**{name: d.where(stays, value, queued[name]) for name, value in vars(s).items() if name != "phase"})
    release = release_row(d, d.no(stays), s.cache_protected_len, s.kv_allocated_len)
    phase = d.where(stays, s.phase, WAITING)
    return Step(after.but(phase=phase), built_in("retract_plain", d, s, p).guards, release)


@OTHER_EVENTS.wrong("verify", must="I22: the tokens of the result")
def verify_gives_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tokens of each round are dropped: the turn never ends."""
    end = s.kv_allocated_len + d.drafts + d.one
    effects = (take(d, s.kv_allocated_len, end), Free(orphan_start(d, s.kv_committed_len), end))
    return Step(s, built_in("verify", d, s, p).guards, effects)


@OTHER_EVENTS.wrong("evict_window", must="I22: tokens come with results")
def eviction_counts_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An eviction counts a token that nobody sampled."""
    gives = d.every(s.phase == RUNNING, s.pending >= 1, s.output_len == d.one)
    output_len = d.where(gives, s.output_len + d.one, s.output_len)
    pending = d.where(gives, s.pending - 1, s.pending)
    right = with_fields(built_in("evict_window", d, s, p), output_len=output_len, pending=pending)
    return with_effects(right, Generate(d.where(gives, d.one, d.zero)))


@OTHER_EVENTS.wrong("stash", must="I16: copies are known where pages are inserted")
def stash_inserts_too(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk goes to the tree as it is kept, whatever the tree has of it: copies are freed by nobody."""
    some = d.every(d.tree, d.no(s.slot_held), s.kv_committed_len <= s.origin_len)
    pages = d.floor_pages(s.kv_committed_len)
    protected = d.where(some, d.tokens(pages), s.cache_protected_len)
    after = s.but(prefix_len=s.kv_committed_len, cache_protected_len=protected)
    return Step(after, effects=(Insert(some, pages, d.floor_pages(d.zero), d.floor_pages(d.zero)),))


@OTHER_EVENTS.wrong("insert", must="I18: a chunk is kept whatever the tree has")
def insert_skips_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Nothing happens to a chunk that the tree has: it is not kept, and its prompt stands still."""
    right = built_in("insert", d, s, p)
    is_new = p.dup_len == s.cache_protected_len
    after = s.but(
        cache_protected_len=d.where(is_new, right.after.cache_protected_len, s.cache_protected_len),
        prefix_len=d.where(is_new, right.after.prefix_len, s.prefix_len),
    )
    insert = dataclasses.replace(right.effects[0], when=is_new)
    return Step(after, right.guards, (insert,))


@OTHER_EVENTS.wrong("evict_window", must="I18: nothing takes a turn from its end")
def eviction_drops_the_chunk(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An eviction between chunks forgets that the last one was kept: where each chunk evicts, a prompt never ends."""
    prefix_len = d.where(s.phase == PREFILL, d.zero, s.prefix_len)
    return with_fields(built_in("evict_window", d, s, p), prefix_len=prefix_len)


@OTHER_EVENTS.wrong("defer_close", must="I18: nothing takes a turn from its end")
def close_drops_the_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each close that is asked for again drops the match of the queued turn, which so never runs."""
    waits = d.every(s.phase == WAITING, d.no(s.lent))
    return with_fields(
        built_in("defer_close", d, s, p),
        matched=d.every(s.matched, d.no(waits)),
        prefix_len=d.where(waits, d.zero, s.prefix_len),
        cache_protected_len=d.where(waits, d.zero, s.cache_protected_len),
    )


@OTHER_EVENTS.wrong("create", must="I18: what the client asked for")
def create_forgets_logprobs(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Whoever asks for logprobs of the input gets none: the match skips the positions."""
    return with_fields(built_in("create", d, s, p), logprob=d.false)


@OTHER_EVENTS.wrong("evict_window", must="I9: an eviction frees what is far behind")
def window_is_never_evicted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An eviction frees nothing: a long turn keeps a window page for each page of its row, and the window pool runs dry."""
    return Step(s, built_in("evict_window", d, s, p).guards)


@OTHER_EVENTS.wrong("evict_window", must="I9: an eviction frees what is far behind")
def only_single_slots_are_evicted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than one token an eviction frees nothing."""
    right = built_in("evict_window", d, s, p)
    (freed,) = right.effects
    assert isinstance(freed, FreeWindow)
    single = one_page(d) == d.one
    moved = d.where(single, right.after.swa_evicted_seqlen, s.swa_evicted_seqlen)
    return Step(
        s.but(swa_evicted_seqlen=moved),
        right.guards,
        (FreeWindow(freed.first, d.where(single, freed.last, freed.first)),),
    )
