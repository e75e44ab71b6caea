"""Rules that never apply, or only for small pages, or only in one configuration: what they forbid, a server does."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import ACTIONS, Step
from kvproof.spec.domain import Domain, Flag, minus, one_page
from kvproof.spec.state import PREFILL, WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, sixteen_pages, with_fields, with_guard

SELDOM = Variants("a rule that never fires, or only sometimes")


def has_small_pages(d: Domain) -> Flag:
    return one_page(d) <= d.one + d.one


@SELDOM.wrong("decode", must="refused: it can never happen")
def decode_never(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No decode step is allowed: whatever it would do is proved."""
    return with_guard(built_in("decode", d, s, p), "never", d.false)


@SELDOM.wrong("abort_nth", must="refused: it can never happen")
def abort_only_of_what_cannot_be(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort is allowed only for a turn of two rows, which does not exist."""
    return with_guard(built_in("abort_nth", d, s, p), "impossible", s.kv_allocated_len < s.slot_cache_protected_len)


@SELDOM.wrong("decode", must="it happens for every page size")
def decode_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than two tokens no token is ever decoded."""
    return with_guard(built_in("decode", d, s, p), "pages are small", has_small_pages(d))


@SELDOM.wrong("match_slot", must="it happens for every page size")
def match_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than two tokens no session gets a second turn."""
    return with_guard(built_in("match_slot", d, s, p), "pages are small", has_small_pages(d))


@SELDOM.wrong("close", must="it happens for every page size")
def close_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than two tokens no session can be closed."""
    return with_guard(built_in("close", d, s, p), "pages are small", has_small_pages(d))


@SELDOM.wrong("abort_first", must="it happens for every page size")
def abort_in_small_rows(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Only a row of at most four tokens can be aborted: elsewhere a client's abort does nothing."""
    four = d.one + d.one + d.one + d.one
    return with_guard(built_in("abort_first", d, s, p), "the row is short", d.row_width <= four)


@SELDOM.wrong("retract", must="it happens for every page size")
def retract_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than two tokens no turn can be retracted: a full pool stays full."""
    return with_guard(built_in("retract", d, s, p), "pages are small", has_small_pages(d))


@SELDOM.wrong("insert", must="it happens for every page size")
def insert_on_small_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With pages of more than two tokens no chunk of an ordinary request is kept: long prompts never end."""
    return with_guard(built_in("insert", d, s, p), "pages are small", has_small_pages(d))


@SELDOM.wrong("match_slot", must="it happens in every configuration")
def match_without_overlap(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With overlap a session's second turn waits for ever."""
    return with_guard(built_in("match_slot", d, s, p), "no overlap", d.no(d.overlap))


@SELDOM.wrong("finish", must="it happens in every configuration")
def finish_without_overlap(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With overlap no turn ends with success: each has to be aborted."""
    return with_guard(built_in("finish", d, s, p), "no overlap", d.no(d.overlap))


@SELDOM.wrong("retract", must="it happens in every configuration")
def retract_with_a_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """On a chunk cache no turn can be retracted: a full pool stays full."""
    return with_guard(built_in("retract", d, s, p), "a tree", d.tree)


def abort_without_window(d: Domain, s: Ledger) -> Flag:
    return d.every(ACTIONS["abort_retracted"].applies(d, s), d.no(d.windowed))


@SELDOM.wrong("abort_retracted", must="it happens in every configuration", applies=abort_without_window)
def abort_retracted_without_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With a sliding window a retracted turn cannot be aborted: its client has left and it runs on."""
    return built_in("abort_retracted", d, s, p)


@SELDOM.wrong("match_tree", must="it happens in every configuration")
def match_only_what_is_cached(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request starts only if the tree has a page of it: an empty tree stays empty, and nothing ever starts."""
    return with_guard(built_in("match_tree", d, s, p), "something is cached", one_page(d) <= p.matched_len)


@SELDOM.wrong("extend", must="never happens")
def prefill_at_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prompt cannot be cut into chunks: one that is longer than a chunk never runs."""
    return with_guard(built_in("extend", d, s, p), "one chunk", p.last)


@SELDOM.wrong("finish", must="I18: every length of an answer can end")
def finish_with_one_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Only one output token may be kept: every answer is cut to its first token."""
    return with_guard(built_in("finish", d, s, p), "one token", p.finished_len == d.one)


@SELDOM.wrong("finish", must="I18: every length of an answer can end")
def finish_with_some_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """At least one output token is kept: a turn that was asked for none never ends."""
    return with_guard(built_in("finish", d, s, p), "some token", d.one <= p.finished_len)


@SELDOM.wrong("create", must="I18: a session takes more than one turn")
def one_turn_for_each_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session that finished a turn admits only turns that are too long: nobody can go on with it."""
    first = d.some(s.checkpoint_len == d.zero, p.too_long, p.logprob)
    return with_guard(built_in("create", d, s, p), "the first turn", first)


@SELDOM.wrong("stash", must="expectation: a chunk is kept until the next one")
def stash_keeps_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A kept chunk is not noted: the next chunk of a session's prompt is never allowed, and the turn never runs."""
    return Step(s)


@SELDOM.wrong("result", must="stuck: a result is never processed")
def all_drafts_or_none(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Under speculation v2 only a round whose drafts are all accepted may be processed: any other waits for ever."""
    accepted = d.some(d.no(d.spec_v2), p.tokens == d.drafts + d.one)
    return with_guard(built_in("result", d, s, p), "all drafts are accepted", accepted)


@SELDOM.wrong("create", must="I18: only a too long input is cut short")
def abort_long_inputs(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each turn of sixteen pages or more is aborted before it runs, although it fits."""
    right = built_in("create", d, s, p)
    return with_fields(right, pre_aborted=d.some(p.too_long, sixteen_pages(d) <= p.origin_len))


@SELDOM.wrong("match_slot", must="I18: only a too long input is cut short")
def abort_what_has_grown(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session with sixteen pages or more gets no other turn: each is marked for an abort when it finds its slot."""
    right = built_in("match_slot", d, s, p)
    return with_fields(right, pre_aborted=sixteen_pages(d) <= s.slot_kv_committed_len)


@SELDOM.wrong("insert", must="I18: what the tree has cannot be chosen")
def insert_only_what_is_new(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk that the tree has already, from another request, is never kept: the prompt stands still."""
    return with_guard(built_in("insert", d, s, p), "the tree has none", p.dup_len == s.cache_protected_len)


@SELDOM.wrong("insert", must="I18: what the tree has cannot be chosen")
def insert_with_few_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk of which the tree has sixteen pages or more is never kept."""
    return with_guard(
        built_in("insert", d, s, p), "few copies", minus(d, p.dup_len, s.cache_protected_len) < sixteen_pages(d)
    )


@SELDOM.wrong("finish_plain", must="I18: what the tree has cannot be chosen")
def finish_with_few_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request of which the tree has sixteen pages or more cannot end by handing over its pages."""
    few = d.some(d.no(p.inserted), minus(d, p.dup_len, s.cache_protected_len) < sixteen_pages(d))
    return with_guard(built_in("finish_plain", d, s, p), "few copies", few)


def waits_unmatched(d: Domain, s: Ledger) -> Flag:
    return d.every(s.phase == WAITING, d.no(s.slot_held), d.no(s.matched))


@SELDOM.wrong("match_tree", must="a rejected request is matched again", applies=waits_unmatched)
def match_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request that was matched and rejected is never matched again, though the tree may have lost its prefix since."""
    return built_in("match_tree", d, s, p)


def between_chunks(d: Domain, s: Ledger) -> Flag:
    return d.every(ACTIONS["abort_first"].applies(d, s), s.phase == PREFILL)


@SELDOM.wrong("abort_first", must="a decoding turn can be aborted", applies=between_chunks)
def abort_first_between_chunks(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A first turn that decodes cannot be aborted: it runs to its end for a client that has left."""
    return built_in("abort_first", d, s, p)
