"""Output that grows without a result, shrinks, or is counted in another unit."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, Flag, Length
from kvproof.spec.state import PREFILL, WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields

OUTPUTS = Variants("output without a result")


def one_more(d: Domain, s: Ledger, when: Flag) -> Length:
    """One output token more, up to two, so that small instances stay finite."""
    return d.where(d.every(when, s.output_len <= d.one), s.output_len + d.one, s.output_len)


@OUTPUTS.wrong("stash", must="I22")
def stash_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Keeping a chunk appends a token that nothing sampled: the user reads a word that no model wrote."""
    return with_fields(built_in("stash", d, s, p), output_len=one_more(d, s, d.true))


@OUTPUTS.wrong("match_slot", must="I17, I22")
def match_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Restoring the slot appends a token: the turn's text is longer than what was sampled."""
    return with_fields(built_in("match_slot", d, s, p), output_len=one_more(d, s, d.true))


@OUTPUTS.wrong("match_tree", must="I17, I22")
def first_match_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request gets a token each time it is matched, before any forward ran."""
    return with_fields(built_in("match_tree", d, s, p), output_len=one_more(d, s, s.plain))


@OUTPUTS.wrong("late_result", must="I17")
def late_result_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result that comes after the retract appends its token: the turn samples the same position twice."""
    counted = d.every(s.phase == WAITING, s.slot_held, d.no(s.lent))
    return with_fields(built_in("late_result", d, s, p), output_len=one_more(d, s, counted))


@OUTPUTS.wrong("evict_window", must="I22")
def eviction_gives_a_chunk_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Evicting the window between two chunks counts a token: the prompt is not even read to its end."""
    return with_fields(built_in("evict_window", d, s, p), output_len=one_more(d, s, s.phase == PREFILL))


@OUTPUTS.wrong("late_result", must="I17")
def late_result_of_a_request_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The late result of a retracted ordinary request counts, though its KV was given back."""
    counted = d.every(s.phase == WAITING, s.plain, d.one <= s.output_len)
    return with_fields(built_in("late_result", d, s, p), output_len=one_more(d, s, counted))


@OUTPUTS.wrong("retract", must="I17, I22")
def retract_counts_the_dropped_step(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The step in flight counts as a token although its result is dropped: that token is never sampled."""
    known = d.where(d.every(d.overlap, s.pending == 1), s.output_len + d.one, s.output_len)
    return with_fields(built_in("retract", d, s, p), output_len=known)


@OUTPUTS.wrong("retract_plain", must="I17, I22")
def retract_forgets_the_answer(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retracted request forgets its output: the user gets the beginning of the answer twice."""
    return with_fields(built_in("retract_plain", d, s, p), output_len=d.zero)


@OUTPUTS.wrong("retract_plain", must="I17, I22")
def retract_drops_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract drops the last token that was already streamed: it is sampled again, perhaps as another one."""
    two = d.one + d.one
    kept = d.where(two <= s.output_len, s.output_len - d.where(two <= s.output_len, d.one, d.zero), s.output_len)
    return with_fields(built_in("retract_plain", d, s, p), output_len=kept)


@OUTPUTS.wrong("retract", must="I17, I22")
def retract_makes_output_input(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract moves the output but its last token into the input: the tokens that the user paid for are not counted."""
    return with_fields(
        built_in("retract", d, s, p),
        origin_len=s.origin_len + (s.output_len - d.one),
        output_len=d.one,
    )


@OUTPUTS.wrong("decode", must="I22")
def launch_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A token is counted when its step is launched: it counts again when the result comes."""
    return with_fields(built_in("decode", d, s, p), output_len=s.output_len + d.one)


@OUTPUTS.wrong("result", must="I22")
def result_gives_two(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result appends one token more than it brought."""
    return with_fields(built_in("result", d, s, p), output_len=s.output_len + p.tokens + d.one)


@OUTPUTS.wrong("result", must="I22")
def result_is_not_counted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A result appends nothing: the token is computed, and the user never sees it."""
    return with_fields(built_in("result", d, s, p), output_len=s.output_len)


@OUTPUTS.wrong("result", must="I22")
def result_stays_outstanding(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A processed result still counts as in flight: the turn waits for a result that will never come."""
    return with_fields(built_in("result", d, s, p), pending=s.pending)


@OUTPUTS.wrong("evict_window", must="I22")
def eviction_gives_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Evicting the window also counts a token that was never sampled."""
    return with_fields(built_in("evict_window", d, s, p), output_len=one_more(d, s, d.true))


@OUTPUTS.wrong("verify", must="I22")
def verify_keeps_a_rejected_draft(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One rejected draft is appended to the output: the user reads a token that the model refused."""
    return with_fields(built_in("verify", d, s, p), output_len=s.output_len + p.tokens + d.one)
