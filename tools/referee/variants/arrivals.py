"""Sessions and requests as they arrive: lengths that were not asked for, turns that are admitted twice, or not at all."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain
from kvproof.spec.state import WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields

ARRIVALS = Variants("arrivals and matches")


@ARRIVALS.wrong("create", must="I15")
def create_sets_no_marker(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An admitted turn sets no marker: a second one is admitted onto the same row (sglang #22790)."""
    return with_fields(built_in("create", d, s, p), inflight=d.false)


@ARRIVALS.wrong("create", must="I15")
def create_counts_two_turns(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One request is admitted as two turns: the second one never ends."""
    return with_fields(built_in("create", d, s, p), turns=s.turns + 2)


@ARRIVALS.wrong("create", must="the input is what the client sent")
def create_adds_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn has one token more than its client sent: the model reads a word that nobody wrote."""
    return with_fields(built_in("create", d, s, p), origin_len=p.origin_len + d.one)


@ARRIVALS.wrong("arrive", must="the input is what the client sent")
def arrive_adds_a_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request has one token more than its client sent."""
    return with_fields(built_in("arrive", d, s, p), origin_len=p.origin_len + d.one)


@ARRIVALS.wrong("arrive", must="I22")
def arrive_with_an_answer(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request arrives with an output token: the user reads a word before anything ran."""
    return with_fields(built_in("arrive", d, s, p), output_len=d.one)


@ARRIVALS.wrong("create", must="X2, I22")
def create_with_an_answer(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn arrives with an output token that nothing sampled."""
    return with_fields(built_in("create", d, s, p), output_len=d.one)


@ARRIVALS.wrong("create", must="X2")
def too_long_is_run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A too-long turn is run with its input cut to one token: its answer has nothing to do with the question."""
    return with_fields(built_in("create", d, s, p), pre_aborted=d.false)


@ARRIVALS.wrong("create", must="I14")
def create_forgets_the_checkpoint(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A new turn forgets what finished before: after its abort the session is empty."""
    kept = d.where(s.slot_held, s.checkpoint_len, d.zero)
    return with_fields(built_in("create", d, s, p), checkpoint_len=kept, success_len=kept)


@ARRIVALS.wrong("open", must="X1, I15")
def open_with_a_turn(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session opens with its marker set: it never takes a turn."""
    return with_fields(built_in("open", d, s, p), inflight=d.true)


@ARRIVALS.wrong("match_slot", must="X3, I8")
def match_reuses_every_token(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A restored turn keeps no token back: nothing is left to compute a logit from."""
    right = built_in("match_slot", d, s, p)
    return with_fields(right, prefix_len=s.slot_kv_committed_len)


@ARRIVALS.wrong("match_slot", must="X3, I7")
def match_reuses_less_than_it_keeps(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn recomputes from the tree's prefix on, and the pages behind it are overwritten unfreed."""
    return with_fields(built_in("match_slot", d, s, p), prefix_len=s.slot_cache_protected_len)


@ARRIVALS.wrong("match_tree", must="X3, I12")
def match_protects_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The matched prefix counts as the request's own: its release frees pages of the tree."""
    return with_fields(built_in("match_tree", d, s, p), cache_protected_len=d.zero)


@ARRIVALS.wrong("pass_by", must="I15")
def refused_turn_ends_the_running_one(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The answer to a refused turn clears the marker of the turn that runs (sglang #22790)."""
    return with_fields(built_in("pass_by", d, s, p), inflight=d.false)


@ARRIVALS.wrong("refuse", must="I5, I15")
def refuse_admits(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A busy session admits a second turn."""
    return with_fields(built_in("refuse", d, s, p), turns=s.turns + 1)


@ARRIVALS.wrong("refuse", must="a refused turn changes nothing")
def refusal_resets_the_match(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused turn throws the match of the waiting one away: a client that retries quickly starves it."""
    waiting = d.every(s.phase == WAITING, d.no(s.slot_held))
    return with_fields(
        built_in("refuse", d, s, p),
        matched=d.every(s.matched, d.no(waiting)),
        prefix_len=d.where(waiting, d.zero, s.prefix_len),
        cache_protected_len=d.where(waiting, d.zero, s.cache_protected_len),
    )
