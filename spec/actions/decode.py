"""A turn that runs: decode steps, speculative rounds, their results, and the sliding window behind it."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.actions.prefill import take
from kvproof.spec.domain import (
    Domain,
    Flag,
    Length,
    larger,
    orphan_start,
    window_keep_from,
)
from kvproof.spec.effects import Free, FreeWindow, Generate, Write, most_tokens
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, is_live

DECODE_ACTIONS = ActionTable()
action = DECODE_ACTIONS.action
AT_MOST_ONE_IS_LATE = "no more than one result is late"


def _results_are_in(d: Domain, s: Ledger) -> Flag:
    return d.every(d.one <= s.output_len, s.pending == 0)


def _at_most_one_in_flight(d: Domain, s: Ledger) -> Guard:
    return Guard(AT_MOST_ONE_IS_LATE, d.some(s.pending == 0, d.every(d.overlap, s.pending == 1)))


def _claim_next(d: Domain, s: Ledger, allocated: Length, guards: tuple[Guard, ...]) -> Step:
    """One position is claimed (C += 1) by the step that is launched now; A becomes `allocated`."""
    claimed = s.kv_committed_len + d.one
    after = s.but(kv_committed_len=claimed, kv_allocated_len=allocated, pending=s.pending + 1)
    effects = (
        take(d, s.kv_allocated_len, allocated),
        Write(s.kv_committed_len, claimed),
    )
    guards = (_at_most_one_in_flight(d, s), *guards, Guard("a row is wide enough", allocated <= d.row_width))
    return Step(after, guards, effects)


@action("decode", when=lambda d, s: d.every(s.phase == RUNNING, d.no(d.spec_v1), d.no(d.spec_v2)))
def decode(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One decode step is prepared and launched.

    Prepare one step and launch it: the position of the next token is claimed, and one more is allocated.
    """
    return _claim_next(d, s, s.kv_allocated_len + d.one, ())


def end_of_round(d: Domain, s: Ledger) -> Length:
    """Up to where a round of speculation v2 may write that is prepared now: one in flight may move it by all its drafts."""
    return s.kv_committed_len + d.one + d.drafts + d.where(s.pending == 0, d.zero, d.drafts)


@action(
    "decode",
    when=lambda d, s: d.every(s.phase == RUNNING, d.spec_v2),
    takes={"allocated_len": "length"},
    source="sglang #22651",
)
def prepare_round(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round of speculation v2 is prepared and launched.

    Speculation v2: the bonus position is claimed as a decode step claims its own, and the drafts' are reserved (#22651).

    How far ahead is the implementation's choice (sglang 0.5.11: to C + 2 * (drafts + 1)). But a round that is still in
    flight may move this one by all its drafts, and this one writes all of its own.
    """
    guards = (
        Guard("what is allocated stays", s.kv_allocated_len <= p.allocated_len),
        Guard("every position that the round may write is allocated", end_of_round(d, s) <= p.allocated_len),
    )
    return _claim_next(d, s, p.allocated_len, guards)


@action("result", when=lambda d, s: s.phase == RUNNING, takes={"tokens": "length"}, source="sglang #22651")
def result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A step's result is processed.

    `tokens` more are known. All but the claimed one were drafts that the model accepted.
    """
    more = p.tokens - d.one
    guards = (
        Guard("a step was prepared", s.pending >= 1),
        Guard("a step gives at least one token", d.one <= p.tokens),
        Guard("only speculation gives more than one", d.some(d.spec_v2, p.tokens == d.one)),
        Guard("no more is accepted than was drafted", p.tokens <= most_tokens(d)),
        Guard("accepted drafts have positions", s.kv_committed_len + more <= s.kv_allocated_len),
    )
    committed = s.kv_committed_len + more
    after = s.but(
        output_len=s.output_len + p.tokens, kv_committed_len=committed, pending=s.pending - 1, prefill_known=d.true
    )
    return Step(after, guards, (Generate(p.tokens), Write(s.kv_committed_len, committed)))


@action("result", when=lambda d, s: s.phase == PREFILL, source="sglang-jax #994")
def chunk_result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk's result is processed and gives no token.

    The chunk does not end the input: nothing is sampled (sglang-jax #994).
    """
    guards = (Guard("a chunk was launched", s.pending >= 1),)
    return Step(s.but(pending=s.pending - 1, prefill_known=d.true), guards)


@action("verify", when=lambda d, s: d.every(s.phase == RUNNING, d.spec_v1), takes={"tokens": "length"})
def verify(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round of speculation v1 is drafted and verified.

    All in one: allocate draft room, verify, free the rejected tail, C += tokens, A = C.
    """
    room = s.kv_allocated_len + d.drafts + d.one
    committed = s.kv_committed_len + p.tokens
    guards = (
        Guard("the previous result is known", _results_are_in(d, s)),
        Guard("a round gives at least one token", d.one <= p.tokens),
        Guard("no more is accepted than was drafted", p.tokens <= most_tokens(d)),
        Guard("a row is wide enough", room <= d.row_width),
    )
    after = s.but(kv_committed_len=committed, kv_allocated_len=committed, output_len=s.output_len + p.tokens)
    effects = (
        Generate(p.tokens),
        take(d, s.kv_allocated_len, room),
        Write(s.kv_committed_len, committed),
        Free(orphan_start(d, committed), room),
    )
    return Step(after, guards, effects)


@action("window", when=lambda d, s: d.every(d.windowed, is_live(d, s)), takes={"pre_len": "length"})
def evict_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Slots behind the sliding window are freed.

    E := max(E, R), then up to floor_P(pre_len - W - P): the window pool's pages behind it are freed.
    """
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, window_keep_from(d, p.pre_len))
    guards = (Guard("only what has its KV leaves the window", p.pre_len <= s.kv_committed_len),)
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    return Step(s.but(swa_evicted_seqlen=moved), guards, (freed,))


@action("result", when=lambda d, s: d.every(d.no(is_live(d, s)), d.some(d.overlap, s.phase == WAITING)))
def late_result(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result arrives for a turn that no longer runs.

    The turn is queued again or over: its result changes no length.
    """
    return Step(s)


@action("result", when=lambda d, s: d.every(d.overlap, d.no(s.plain)), of_another=True)
def result_of_ended(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result arrives for a turn that is over, whatever its session does by now.

    It changes no length.
    """
    return Step(s)
