"""A turn that runs: decode, its results, and every way to end or interrupt it."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import Action, Guard, Step
from kvproof.spec.actions.prefill import charge_covers, insert_own
from kvproof.spec.actions.release import release_row, release_slot
from kvproof.spec.domain import (
    Count,
    Domain,
    Flag,
    Length,
    footprint,
    is_aligned,
    larger,
    one_page,
    orphan_start,
    smaller,
    window_from,
    window_keep_from,
)
from kvproof.spec.effects import Forget, Free, FreeWindow, Report, Require, Take, Write
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, end_turn, fill_len, is_live, owner_is_slot

HAS_GENERATED = "the turn has generated"


def kv_of_known_tokens(d: Domain, s: Ledger) -> Length:
    """C once all results are in: every token but the last sampled one has its KV."""
    return fill_len(s) - d.one


def _results_are_in(d: Domain, s: Ledger) -> Flag:
    return d.every(d.one <= s.output_len, s.pending == 0)


def _at_most_one_is_late(d: Domain, s: Ledger) -> Flag:
    """Without overlap every result is known; with it the step in flight may still run."""
    return d.every(d.one <= s.output_len, d.some(s.pending == 0, d.every(d.overlap, s.pending == 1)))


def _at_most_one_in_flight(d: Domain, s: Ledger) -> Guard:
    return Guard("no more than one result is late", d.some(s.pending == 0, d.every(d.overlap, s.pending == 1)))


def _claim_next(d: Domain, s: Ledger, allocated: Length, guards: tuple[Guard, ...]) -> Step:
    """One position is claimed (C += 1) by the step that is launched now; A becomes `allocated`."""
    claimed = s.kv_committed_len + d.one
    after = s.but(kv_committed_len=claimed, kv_allocated_len=allocated, pending=s.pending + 1)
    effects = (
        charge_covers(d, s.kv_allocated_len, allocated),
        Take(d.ceil_pages(s.kv_allocated_len), d.ceil_pages(allocated)),
        Write(s.kv_committed_len, claimed),
    )
    guards = (_at_most_one_in_flight(d, s), *guards, Guard("a row is wide enough", allocated <= d.row_width))
    return Step(after, guards, effects)


def _decode(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Prepare one step and launch it: the position of the next token is claimed, and one more is allocated."""
    return _claim_next(d, s, s.kv_allocated_len + d.one, ())


def _prepare_round(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Speculation v2: the bonus position is claimed as a decode step claims its own, and the drafts' are reserved (#22651).

    How far ahead is the implementation's choice (sglang 0.5.11: to C + 2 * (drafts + 1)). But a round that is still in
    flight may move this one by all its drafts, and this one writes all of its own.
    """
    in_flight = d.where(s.pending == 0, d.zero, d.drafts)
    needed = s.kv_committed_len + d.one + d.drafts + in_flight
    guards = (
        Guard("what is allocated stays", s.kv_allocated_len <= p.allocated_len),
        Guard("every position that the round may write is allocated", needed <= p.allocated_len),
    )
    return _claim_next(d, s, p.allocated_len, guards)


def _result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result is processed: `tokens` more are known. All but the claimed one were drafts that the model accepted."""
    more = p.tokens - d.one
    guards = (
        Guard("a step was prepared", s.pending >= 1),
        Guard("a step gives at least one token", d.one <= p.tokens),
        Guard("only speculation gives more than one", d.some(d.spec_v2, p.tokens == d.one)),
        Guard("no more is accepted than was drafted", p.tokens <= d.drafts + d.one),
        Guard("accepted drafts have positions", s.kv_committed_len + more <= s.kv_allocated_len),
    )
    committed = s.kv_committed_len + more
    after = s.but(output_len=s.output_len + p.tokens, kv_committed_len=committed, pending=s.pending - 1)
    return Step(after, guards, (Write(s.kv_committed_len, committed),))


def no_token_of_a_chunk(s: Ledger, output_len: Length) -> Require:
    return Require("I22", output_len == s.output_len, "a chunk that does not end the input gives no token")


def _chunk_result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The result of a chunk in the middle of the input: nothing is sampled (sglang-jax #994)."""
    guards = (Guard("a chunk was launched", s.pending >= 1),)
    return Step(s.but(pending=s.pending - 1, chunk_known=d.true), guards, (no_token_of_a_chunk(s, s.output_len),))


def _verify(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round of speculation v1, all in one: allocate draft room, verify, free the rejected tail, C += tokens, A = C."""
    room = s.kv_allocated_len + d.drafts + d.one
    committed = s.kv_committed_len + p.tokens
    guards = (
        Guard("the previous result is known", _results_are_in(d, s)),
        Guard("a round gives at least one token", d.one <= p.tokens),
        Guard("no more is accepted than was drafted", p.tokens <= d.drafts + d.one),
        Guard("a row is wide enough", room <= d.row_width),
    )
    after = s.but(kv_committed_len=committed, kv_allocated_len=committed, output_len=s.output_len + p.tokens)
    effects = (
        charge_covers(d, s.kv_allocated_len, room),
        Take(d.ceil_pages(s.kv_allocated_len), d.ceil_pages(room)),
        Write(s.kv_committed_len, committed),
        Free(orphan_start(d, committed), room),
    )
    return Step(after, guards, effects)


def _evict_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """E := max(E, R), then up to floor_P(pre_len - W - P): the window pool's pages behind it are freed."""
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, window_keep_from(d, p.pre_len))
    guards = (Guard("only what has its KV leaves the window", p.pre_len <= s.kv_committed_len),)
    stays = d.some(moved == cursor, moved + d.window + one_page(d) <= p.pre_len)
    keeps = Require("I9", stays, "what the window reaches, and a page before it, stays")
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), guards, (keeps, freed))


def _late_result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn is queued again or over: its result changes no length."""
    return Step(s)


def _finish(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Trim to T = O + F, save the slot, clear the marker, advance the checkpoint (#22790, #22897, #22900)."""
    guards = (
        Guard("at most the step in flight is late", _at_most_one_is_late(d, s)),
        Guard("at least one output token is kept", d.one <= p.finished_len),
        Guard("no more than what was generated is kept", p.finished_len <= s.output_len),
        Guard("a pre-aborted turn never finishes with success", d.no(s.pre_aborted)),
    )
    target = s.origin_len + p.finished_len
    trimmed = s.but(
        kv_committed_len=smaller(d, s.kv_committed_len, target),
        kv_allocated_len=smaller(d, s.kv_allocated_len, target),
        swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, target),
    )
    after = end_turn(d, save_slot(d, trimmed)).but(
        inflight=d.false, turns=s.turns - 1, checkpoint_len=target, success_len=target
    )
    return Step(after, guards, (Free(orphan_start(d, target), s.kv_allocated_len), Forget(target)))


def save_slot(d: Domain, s: Ledger) -> Ledger:
    """The slot takes the turn's row and lengths; R and the tree lock only from the first turn."""
    return s.but(
        slot_held=d.true,
        slot_kv_committed_len=s.kv_committed_len,
        slot_kv_allocated_len=s.kv_allocated_len,
        slot_swa_evicted_seqlen=s.swa_evicted_seqlen,
        slot_cache_protected_len=d.where(s.slot_held, s.slot_cache_protected_len, s.cache_protected_len),
    )


def queued_again(d: Domain, s: Ledger) -> Ledger:
    """A retracted turn keeps its tokens and its place; its lengths become 0 and it will be matched again."""
    kept = {name: getattr(s, name) for name in ("plain", "pre_aborted", "logprob", "origin_len", "output_len")}
    return end_turn(d, s).but(phase=WAITING, **kept)


def _retract(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Pool pressure: the slot keeps the turn's KV, the turn queues again; marker and checkpoint stay.

    A step that was prepared has been launched under overlap, and its result will be dropped. Without overlap it never
    runs, and the position that it claimed stays without KV.
    """
    guards = (
        Guard("at most one result is not known", s.pending <= 1),
        Guard(HAS_GENERATED, d.one <= s.output_len),
        Guard("a pre-aborted turn ends with its prefill", d.no(s.pre_aborted)),
    )
    computed = d.where(d.some(d.overlap, s.pending == 0), s.kv_committed_len, kv_of_known_tokens(d, s))
    return Step(queued_again(d, save_slot(d, s)), guards, (Forget(computed),))


def _over(d: Domain, s: Ledger) -> Ledger:
    """The turn ends without success: the marker clears, the checkpoint stays."""
    return end_turn(d, s).but(inflight=d.false, turns=s.turns - d.where(s.plain, 0, 1))


def _abort_first(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """No slot exists yet: the turn itself returns row, pages and tree lock."""
    release = release_row(d, d.true, s.cache_protected_len, s.kv_allocated_len)
    return Step(_over(d, s), effects=release)


def _abort_nth(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """All that slot and turn hold goes back; the tokens of the checkpoint stay, the next turn prefills from them."""
    released, effects = release_slot(d, s, larger(d, s.slot_kv_allocated_len, s.kv_allocated_len))
    return Step(_over(d, released), effects=effects)


def slot_has_run_ahead(d: Domain, s: Ledger) -> Flag:
    """The slot holds tokens of a turn that was retracted: more than the checkpoint's."""
    return d.every(s.slot_held, s.checkpoint_len < s.slot_kv_committed_len)


def _abort_queued(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn never ran: only the marker clears."""
    return Step(_over(d, s))


def _abort_retracted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn ran before it was queued again, and the slot holds its tokens: as an n-th abort."""
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    return Step(_over(d, released), effects=effects)


def _finish_plain(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One release entry: whole committed pages go to the tree (or are freed), the rest is freed, the row returns (#12224)."""
    pages = d.floor_pages(s.kv_committed_len)
    guards = (
        Guard(
            "no more than the step in flight is late",  # of chunks, results need not be told
            d.some(s.phase == PREFILL, s.pending == 0, d.every(d.overlap, s.pending == 1)),
        ),
        Guard("a chunk cache takes nothing", d.some(d.tree, d.no(p.inserted))),
        Guard("the tree holds whole pages", is_aligned(d, p.dup_len)),
        Guard("duplicates are of inserted pages", d.some(d.no(p.inserted), d.floor_pages(p.dup_len) <= pages)),
        Guard("the locked prefix is still in the tree", d.some(d.no(p.inserted), s.cache_protected_len <= p.dup_len)),
    )
    own = d.where(p.inserted, d.tokens(pages), s.cache_protected_len)
    insert = insert_own(d, s, p.inserted, pages, p.dup_len)
    return Step(_over(d, s), guards, (insert, *release_row(d, d.true, own, s.kv_allocated_len)))


def _retract_plain(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request gives everything back and queues again."""
    return Step(queued_again(d, s), effects=release_row(d, d.true, s.cache_protected_len, s.kv_allocated_len))


def session_held(d: Domain, s: Ledger) -> Count:
    """Pages that the memory check counts as held by the slot: none while its row is in a live batch (#22213, #22753)."""
    return d.where(owner_is_slot(d, s), footprint(d, s.slot_kv_allocated_len, s.slot_cache_protected_len), 0)


def uncached(d: Domain, s: Ledger) -> Count:
    """Pages that the memory check counts for a live turn beside what the tree owns."""
    return d.where(is_live(d, s), footprint(d, s.kv_allocated_len, s.cache_protected_len), 0)


def window_held(d: Domain, s: Ledger) -> Count:
    """The same for the window pool: from max(R, E) on."""
    lower = window_from(d, s.slot_cache_protected_len, s.slot_swa_evicted_seqlen)
    return d.where(owner_is_slot(d, s), d.ceil_pages(s.slot_kv_allocated_len) - lower, 0)


def window_uncached(d: Domain, s: Ledger) -> Count:
    lower = window_from(d, s.cache_protected_len, s.swa_evicted_seqlen)
    return d.where(is_live(d, s), d.ceil_pages(s.kv_allocated_len) - lower, 0)


def report(d: Domain, s: Ledger) -> Report:
    """The terms of the memory check for this ledger, both pools."""
    return Report(session_held(d, s), uncached(d, s), window_held(d, s), window_uncached(d, s))


def _check(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """`lingering`: the last turn ended in this very step and may still stand in the last batch. It counts nowhere."""
    return Step(s, effects=(report(d, s),))


def _is_session_turn(d: Domain, s: Ledger) -> Flag:
    return d.every(s.is_open, is_live(d, s))


TURN_ACTIONS = (
    Action(
        "decode",
        "decode",
        "one decode step is prepared and launched",
        lambda d, s: d.every(s.phase == RUNNING, d.no(d.spec_v1), d.no(d.spec_v2)),
        _decode,
    ),
    Action(
        "prepare_round",
        "decode",
        "a round of speculation v2 is prepared and launched",
        lambda d, s: d.every(s.phase == RUNNING, d.spec_v2),
        _prepare_round,
        {"allocated_len": "length"},
        "sglang #22651",
    ),
    Action(
        "result",
        "result",
        "a step's result is processed",
        lambda d, s: s.phase == RUNNING,
        _result,
        {"tokens": "length"},
        "sglang #22651",
    ),
    Action(
        "chunk_result",
        "result",
        "a chunk's result is processed and gives no token",
        lambda d, s: s.phase == PREFILL,
        _chunk_result,
        source="sglang-jax #994",
    ),
    Action(
        "verify",
        "verify",
        "a round of speculation v1 is drafted and verified",
        lambda d, s: d.every(s.phase == RUNNING, d.spec_v1),
        _verify,
        {"tokens": "length"},
    ),
    Action(
        "evict_window",
        "window",
        "slots behind the sliding window are freed",
        lambda d, s: d.every(d.windowed, is_live(d, s)),
        _evict_window,
        {"pre_len": "length"},
    ),
    Action(
        "late_result",
        "result",
        "a result arrives for a turn that no longer runs",
        lambda d, s: d.every(d.no(is_live(d, s)), d.some(d.overlap, s.phase == WAITING)),
        _late_result,
    ),
    Action(
        "result_of_ended",
        "result",
        "a result arrives for a turn that is over, whatever its session does by now",
        lambda d, s: d.every(d.overlap, d.no(s.plain)),
        _late_result,
        of_another=True,
    ),
    Action(
        "finish",
        "finish",
        "a session turn ends with success and saves its slot",
        lambda d, s: d.every(s.is_open, s.phase == RUNNING),
        _finish,
        {"finished_len": "length"},
        "sglang #22790, #22897",
    ),
    Action(
        "finish_plain",
        "finish",
        "an ordinary request ends",
        lambda d, s: d.every(s.plain, is_live(d, s)),
        _finish_plain,
        {"dup_len": "length", "inserted": "flag"},
        "sglang #12224",
    ),
    Action(
        "retract",
        "retract",
        "a session turn is retracted into its slot",
        lambda d, s: d.every(s.is_open, s.phase == RUNNING),
        _retract,
        source="sglang #22862",
    ),
    Action(
        "retract_plain",
        "retract",
        "an ordinary request is retracted",
        lambda d, s: d.every(s.plain, s.phase == RUNNING),
        _retract_plain,
        source="sglang #12224",
    ),
    Action(
        "abort_first",
        "abort",
        "a session's first turn is aborted mid-way",
        lambda d, s: d.every(_is_session_turn(d, s), d.no(s.slot_held)),
        _abort_first,
        source="sglang #22790",
    ),
    Action(
        "abort_nth",
        "abort",
        "a later turn is aborted mid-way",
        lambda d, s: d.every(_is_session_turn(d, s), s.slot_held),
        _abort_nth,
        source="sglang #22790",
    ),
    Action(
        "abort_queued",
        "abort",
        "a queued turn that never ran is aborted",
        lambda d, s: d.every(s.phase == WAITING, d.no(slot_has_run_ahead(d, s))),
        _abort_queued,
        source="sglang #22790",
    ),
    Action(
        "abort_retracted",
        "abort",
        "a retracted turn is aborted in the queue",
        lambda d, s: d.every(s.phase == WAITING, slot_has_run_ahead(d, s)),
        _abort_retracted,
    ),
    Action(
        "check",
        "check",
        "the memory check reads its terms",
        lambda d, s: d.true,
        _check,
        {"lingering": "flag"},
        "sglang #22213",
    ),
)
