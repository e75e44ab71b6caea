"""Rules that drop a turn in the middle, count what is launched otherwise, or keep what a step in flight did not compute."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.release import release_row, release_slot
from kvproof.spec.domain import Domain, Flag, floor_align, larger, minus
from kvproof.spec.effects import End, EndSession, FreeWindow
from kvproof.spec.state import NONE, PREFILL, Ledger, drop_slot, end_turn, is_live
from referee.cases import Variants
from referee.variants.changes import built_in, with_effects, with_fields, with_guard, without_guard

LAUNCHES = Variants("what is launched, and what is kept of it")


def dropped(d: Domain, s: Ledger) -> Step:
    """The turn is gone, and its row, or its slot's, goes back."""
    end = d.where(is_live(d, s), larger(d, s.slot_kv_allocated_len, s.kv_allocated_len), s.slot_kv_allocated_len)
    own = d.where(s.slot_held, s.slot_cache_protected_len, s.cache_protected_len)
    after = end_turn(d, drop_slot(d, s)).but(inflight=d.false)
    return Step(after, effects=(*release_row(d, d.some(s.slot_held, is_live(d, s)), own, end), End(d.no(s.plain))))


@LAUNCHES.wrong("stash", must="I15: a turn is over where it finishes or is aborted")
def chunk_ends_the_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk of a session's turn is not kept: the turn is dropped without an answer, with every prompt that needs two chunks."""
    return dropped(d, s)


@LAUNCHES.wrong("chunk_result", must="I15: a turn is over where it finishes or is aborted")
def result_of_a_chunk_ends_the_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The result of a chunk has no token, and the turn is taken for one that has ended: the client waits for an answer."""
    return dataclasses.replace(dropped(d, s), guards=built_in("chunk_result", d, s, p).guards)


def of_an_idle_session(d: Domain, s: Ledger) -> Flag:
    return d.every(d.no(s.plain), s.phase == NONE)


@LAUNCHES.wrong("open", must="I15: a session that is opened was closed", applies=of_an_idle_session)
def open_wipes_an_open_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A client that opens its session again loses the KV and the history of it."""
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    after = released.but(is_open=d.true, closing=d.false, checkpoint_len=d.zero)
    return Step(after, effects=(*effects, EndSession()))


@LAUNCHES.wrong("extend", must="I18: the result of each chunk comes")
def chunks_count_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With overlap two chunks are in flight and one is counted: nobody takes the result of the second."""
    return with_fields(built_in("extend", d, s, p), pending=d.where(d.some(p.last, d.overlap), 1, 0))


@LAUNCHES.wrong("chunk_result", must="I18: the result of each chunk comes")
def one_result_for_all(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The result of the first chunk stands for all: nobody takes the result of the second."""
    return with_fields(built_in("chunk_result", d, s, p), pending=0)


@LAUNCHES.wrong("extend", must="I18: a prefill runs at least one token")
def chunk_of_no_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk without a token is launched again and again, and the prompt never ends."""
    right = without_guard(built_in("extend", d, s, p), "at least one token")
    again = d.every(s.phase == PREFILL, s.prefix_len == p.seq_len)
    return with_guard(right, "a chunk may be empty", d.some(s.prefix_len < p.seq_len, again))


@LAUNCHES.wrong("finish", must="I8: what did not run has no KV")
def finish_keeps_what_never_ran(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Without overlap a step was prepared and never runs; its position stays in the slot, and the next turn reads it."""
    right = without_guard(built_in("finish", d, s, p), "at most the step in flight")
    return with_guard(right, "at most one step", d.every(d.one <= s.output_len, s.pending <= 1))


@LAUNCHES.wrong("finish_plain", must="I8: what did not run has no KV")
def request_leaves_what_never_ran(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Without overlap a step was prepared and never runs; the tree takes its page, and other requests read it."""
    right = without_guard(built_in("finish_plain", d, s, p), "no more than the step in flight")
    return with_guard(right, "at most one step", d.some(s.phase == PREFILL, s.pending <= 1))


@LAUNCHES.wrong("finish_plain", must="I8: the tree takes known tokens")
def request_leaves_a_token_that_nobody_knows(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With overlap two steps are in flight: the tree takes a page under a key whose last token is not known."""
    right = without_guard(built_in("finish_plain", d, s, p), "no more than the step in flight")
    return with_guard(right, "two with overlap", d.some(s.phase == PREFILL, s.pending == 0, d.overlap))


@LAUNCHES.wrong("finish_plain", must="I12: a chunk cache takes nothing")
def chunk_cache_is_given_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Without a tree the pages of a request are left to one: nobody has them."""
    return without_guard(built_in("finish_plain", d, s, p), "a chunk cache takes nothing")


@LAUNCHES.wrong("verify", must="I17: a round begins behind a known token")
def round_before_the_first_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round is drafted behind a token that is not known yet: it verifies against nothing."""
    return without_guard(built_in("verify", d, s, p), "the previous result")


@LAUNCHES.wrong("verify", must="I3: no page behind the end of the row")
def round_behind_the_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Drafts are written behind the end of the row: into the page table of the next one."""
    right = without_guard(built_in("verify", d, s, p), "a row is wide enough")
    return with_guard(right, "what is accepted fits", right.after.kv_allocated_len <= d.row_width)


def evicting(d: Domain, s: Ledger, right: Step) -> Step:
    """The step evicts what the token behind it does not read."""
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, floor_align(d, minus(d, right.after.kv_committed_len, d.window)))
    first, last = d.where(d.windowed, d.ceil_pages(cursor), 0), d.where(d.windowed, d.floor_pages(moved), 0)
    after = d.where(d.windowed, moved, s.swa_evicted_seqlen)
    return with_fields(with_effects(right, FreeWindow(first, last)), swa_evicted_seqlen=after)


@LAUNCHES.wrong("decode", must="I9: the window of the token that runs")
def decode_evicts_up_to_its_end(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A step evicts what the token behind it does not read: its own token does."""
    return evicting(d, s, built_in("decode", d, s, p))


@LAUNCHES.wrong("extend", must="I9: the window of the token that runs")
def chunk_evicts_up_to_its_end(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk evicts what the token behind it does not read: its own first tokens do."""
    return evicting(d, s, built_in("extend", d, s, p))
