"""Reserves of speculation: too few positions, too many accepted drafts, reserves that shrink."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Guard, Step
from kvproof.spec.actions.prefill import take
from kvproof.spec.domain import Domain, orphan_start
from kvproof.spec.effects import Free, Write
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, without_guard

SPECULATION = Variants("reserves of speculation")


@SPECULATION.wrong("prepare_round", must="I1")
def reserve_without_drafts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round reserves only its bonus position: the drafts' KV is written behind the row's last page."""
    right = without_guard(built_in("prepare_round", d, s, p), "every position")
    bonus = Guard("the bonus position is allocated", s.kv_committed_len + d.one <= p.allocated_len)
    return dataclasses.replace(right, guards=(*right.guards, bonus))


@SPECULATION.wrong("prepare_round", must="I1")
def reserve_ignores_the_round_in_flight(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The round in flight may accept its drafts and move this one: it then writes behind its last page (sglang #22651)."""
    right = without_guard(built_in("prepare_round", d, s, p), "every position")
    own = Guard("its own positions are allocated", s.kv_committed_len + d.one + d.drafts <= p.allocated_len)
    return dataclasses.replace(right, guards=(*right.guards, own))


@SPECULATION.wrong("prepare_round", must="I1")
def reserve_one_too_few(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The last draft has no position: it is written into a page of somebody else."""
    right = without_guard(built_in("prepare_round", d, s, p), "every position")
    in_flight = d.where(s.pending == 0, d.zero, d.drafts)
    enough = Guard("nearly all", s.kv_committed_len + d.drafts + in_flight <= p.allocated_len)
    claimed = Guard("the bonus position is allocated", s.kv_committed_len + d.one <= p.allocated_len)
    return dataclasses.replace(right, guards=(*right.guards, enough, claimed))


@SPECULATION.wrong("prepare_round", must="I1")
def reserve_may_shrink(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round may lower A without a free: the pages behind it are lost."""
    return without_guard(built_in("prepare_round", d, s, p), "what is allocated stays")


@SPECULATION.wrong("result", must="I1, I3")
def accept_beyond_the_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Accepted drafts need no position: C runs ahead of A."""
    return without_guard(built_in("result", d, s, p), "accepted drafts have positions")


@SPECULATION.wrong("result", must="I22")
def accept_more_than_was_drafted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round may bring more tokens than it drafted: tokens that no forward computed."""
    return without_guard(built_in("result", d, s, p), "no more is accepted")


@SPECULATION.wrong("result", must="I22")
def accept_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round may give no token, and takes back the claimed position: C goes down below what was written."""
    right = without_guard(built_in("result", d, s, p), "at least one token")
    return with_fields(right, kv_committed_len=s.kv_committed_len)


@SPECULATION.wrong("result", must="I22")
def commit_every_draft(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Rejected drafts are committed, too: the next tokens attend to words that were refused."""
    right = built_in("result", d, s, p)
    committed = d.where(d.spec_v2, s.kv_committed_len + d.drafts, right.after.kv_committed_len)
    return with_fields(right, kv_committed_len=committed)


@SPECULATION.wrong("verify", must="I1, I3")
def verify_without_the_bonus(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages count the drafts and not the bonus token: its KV has no page."""
    right = built_in("verify", d, s, p)
    room = s.kv_allocated_len + d.drafts
    effects = (
        right.effects[0],
        take(d, s.kv_allocated_len, room),
        Write(s.kv_committed_len, s.kv_committed_len + p.tokens),
        Free(orphan_start(d, s.kv_committed_len + p.tokens), room),
    )
    return dataclasses.replace(right, effects=effects)


@SPECULATION.wrong("verify", must="I1, I3")
def verify_accepts_more_than_was_drafted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round may accept more than it drafted: tokens without a position."""
    return without_guard(built_in("verify", d, s, p), "no more is accepted")


@SPECULATION.wrong("verify", must="X3")
def verify_keeps_its_reserve(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A stays at the end of the pages whose tail was freed: the next release frees it again."""
    return with_fields(built_in("verify", d, s, p), kv_allocated_len=s.kv_allocated_len + d.drafts + d.one)


@SPECULATION.wrong("prepare_round", must="I22")
def claim_every_draft(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A round claims its drafts before they are accepted (sglang #22651): the slot hands on tokens that were refused."""
    right = built_in("prepare_round", d, s, p)
    return with_fields(right, kv_committed_len=s.kv_committed_len + d.one + d.drafts)
