"""Retracts, aborts and detached turns, in each phase."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Forget
from kvproof.spec.state import NONE, WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, without, without_guard

INTERRUPTED = Variants("retract, abort and detach")


@INTERRUPTED.wrong("retract", must="X2, I8")
def retract_of_what_the_tree_holds(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn may be retracted when the tree holds all its tokens: its next match keeps one less than the tree owns."""
    return without_guard(built_in("retract", d, s, p), "keeps KV of it")


@INTERRUPTED.wrong("retract", must="X2, I8")
def retract_with_two_in_flight(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn may be retracted with two results unknown: its slot claims a token that nobody knows."""
    return without_guard(built_in("retract", d, s, p), "at most one result")


@INTERRUPTED.wrong("retract", must="X1, X2")
def retract_what_will_be_aborted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn that must be aborted may be retracted: its cut input becomes the session's slot."""
    return without_guard(built_in("retract", d, s, p), "ends with its prefill")


@INTERRUPTED.wrong("retract", must="I15")
def retract_ends_the_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract ends the turn: its client is never answered."""
    return with_fields(built_in("retract", d, s, p), phase=NONE)


@INTERRUPTED.wrong("retract", must="I15")
def retract_clears_the_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract clears the in-flight marker: a second turn is admitted onto the same row."""
    return with_fields(built_in("retract", d, s, p), inflight=d.false)


@INTERRUPTED.wrong("retract", must="I8")
def retract_trusts_the_dropped_step(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot claims the position of a step that was prepared and never ran, as if it had its KV."""
    right = built_in("retract", d, s, p)
    return without(with_fields(right, output_len=s.output_len + d.one), Forget)


@INTERRUPTED.wrong("retract", must="I18: a retract is paid for with a token")
def retract_before_the_first_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn may be retracted as soon as its prefill was launched, each time again: it never gets a token."""
    return without_guard(built_in("retract", d, s, p), "result of the prefill")


@INTERRUPTED.wrong("retract_plain", must="I18: a retract is paid for with a token")
def retract_request_before_its_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """As for a turn: an ordinary request is prefilled and retracted for ever."""
    return without_guard(built_in("retract_plain", d, s, p), "result of the prefill")


@INTERRUPTED.wrong("extend", must="I18: a retract is paid for with a token")
def prefill_counts_as_known(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prefill that was launched counts as one whose result is in: its turn may be retracted before it."""
    return with_fields(built_in("extend", d, s, p), prefill_known=d.true)


@INTERRUPTED.wrong("retract_plain", must="I17")
def retracted_request_keeps_its_lengths(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request keeps its lengths though its pages are gone: its next release frees them again."""
    return with_fields(
        built_in("retract_plain", d, s, p),
        kv_committed_len=s.kv_committed_len,
        kv_allocated_len=s.kv_allocated_len,
    )


@INTERRUPTED.wrong("retract_plain", must="never happens, or the request is lost")
def retracted_request_is_lost(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request does not queue again: its client waits for ever."""
    return with_fields(
        built_in("retract_plain", d, s, p),
        phase=NONE,
        plain=d.false,
        origin_len=d.zero,
        output_len=d.zero,
        logprob=d.false,
    )


@INTERRUPTED.wrong("abort_first", must="I15")
def abort_keeps_the_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort leaves the in-flight marker set: the session never takes a turn again."""
    return with_fields(built_in("abort_first", d, s, p), inflight=s.inflight)


@INTERRUPTED.wrong("abort_queued", must="I15")
def abort_keeps_the_turn_waiting(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An aborted turn stays in the queue without a marker: it runs beside the next one."""
    return with_fields(built_in("abort_queued", d, s, p), phase=WAITING, origin_len=s.origin_len)


def waits(d: Domain, s: Ledger) -> Flag:
    return s.phase == WAITING


@INTERRUPTED.wrong("abort_queued", must="I7, I8", applies=waits)
def abort_leaves_the_retracted_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The slot of an aborted turn that had run stays: the next turn inherits KV of an answer that was aborted."""
    return built_in("abort_queued", d, s, p)


@INTERRUPTED.wrong("abort_nth", must="I8, I16")
def abort_keeps_the_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The row goes back and the slot still names it: the next turn reads a stranger's tokens."""
    return with_fields(
        built_in("abort_nth", d, s, p),
        slot_held=d.true,
        slot_kv_committed_len=s.slot_kv_committed_len,
        slot_kv_allocated_len=s.slot_kv_allocated_len,
        slot_cache_protected_len=s.slot_cache_protected_len,
    )


@INTERRUPTED.wrong("detach", must="I15")
def detach_keeps_the_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A detached turn leaves its session's marker set: the session is blocked for ever."""
    return with_fields(built_in("detach", d, s, p), inflight=d.true)


@INTERRUPTED.wrong("detach", must="I15")
def detach_stays_in_the_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A detached turn stays in its session's queue: it overwrites the slot with one token."""
    return with_fields(built_in("detach", d, s, p), phase=WAITING, origin_len=s.origin_len)


@INTERRUPTED.wrong("late_result", must="I17")
def late_result_moves_a_length(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A late result commits its token in a turn that waits: the length describes pages of somebody else."""
    moved = d.where(s.phase == WAITING, s.kv_committed_len + d.one, s.kv_committed_len)
    return with_fields(built_in("late_result", d, s, p), kv_committed_len=moved)


@INTERRUPTED.wrong("result_of_ended", must="I15, I17")
def late_result_ends_the_next_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The result of an ended turn clears the marker of the one that runs now."""
    return with_fields(built_in("result_of_ended", d, s, p), inflight=d.false)
