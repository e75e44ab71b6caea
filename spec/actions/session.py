"""The session around its turns: open, create, refuse, detach, close; and the arrival of ordinary requests."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import Action, Guard, Step
from kvproof.spec.actions.release import release_slot
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Require
from kvproof.spec.state import NONE, WAITING, Ledger, end_turn


def _is_unused(d: Domain, s: Ledger) -> Flag:
    return d.every(d.no(s.is_open), d.no(s.plain), s.phase == NONE)


def _open(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return Step(s.but(is_open=d.true))


def _create(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Admit a turn. Its input is all earlier tokens and at least one new one; a too-long input is cut to one token."""
    guards = (
        Guard("the session is not closing", d.no(s.closing)),
        Guard(
            "a turn only appends: its input is the checkpoint's tokens and at least one more",
            d.some(p.too_long, s.checkpoint_len < p.origin_len),
        ),
        Guard("a too-long input is cut to one token", d.some(d.no(p.too_long), p.origin_len == d.one)),
    )
    turn = end_turn(d, s)
    after = turn.but(
        inflight=d.true,
        phase=WAITING,
        origin_len=p.origin_len,
        pre_aborted=p.too_long,
        logprob=p.logprob,
        turns=s.turns + 1,
    )
    last_turn = Require("I15", d.no(s.closing), "no turn is admitted while a close waits for the one in flight")
    return Step(after, guards, (last_turn,))


def _refuse(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn on a busy session takes nothing and changes nothing."""
    return Step(s)


def _pass_by(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused turn is answered as an ordinary request; to the session it never comes back."""
    return Step(s)


def _detach(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A pre-aborted turn leaves its session before it can touch the slot; it goes on as an ordinary request."""
    return Step(end_turn(d, s).but(inflight=d.false, turns=s.turns - 1))


def _close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Drop the tree lock, free row [R, A) as whole pages, return the row; the session is gone."""
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    after = released.but(is_open=d.false, closing=d.false, checkpoint_len=d.zero, success_len=d.zero)
    return Step(after, effects=effects)


def _defer_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn in flight still uses the row: the close waits for its end."""
    return Step(s.but(closing=d.true))


def _arrive(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    guards = (Guard("a request has at least one input token", d.one <= p.origin_len),)
    return Step(s.but(plain=d.true, phase=WAITING, origin_len=p.origin_len), guards)


SESSION_ACTIONS = (
    Action("open", "open", "a session is opened", _is_unused, _open),
    Action(
        "create",
        "create",
        "an idle session admits a turn and sets its marker",
        lambda d, s: d.every(s.is_open, d.no(s.inflight)),
        _create,
        {"origin_len": "length", "too_long": "flag", "logprob": "flag"},
        "sglang #22790",
    ),
    Action(
        "refuse",
        "create",
        "a busy session refuses a second turn",
        lambda d, s: d.every(s.is_open, s.inflight),
        _refuse,
        source="sglang #22790",
    ),
    Action(
        "pass_by",
        "match",
        "a refused turn is answered outside its session, where it changes nothing",
        lambda d, s: s.is_open,
        _pass_by,
        source="sglang #22790",
        of_another=True,
    ),
    Action(
        "detach",
        "match",
        "a pre-aborted turn leaves a session that holds a slot",
        lambda d, s: d.every(s.is_open, s.phase == WAITING, s.pre_aborted, s.slot_held),
        _detach,
        source="sglang #22790",
    ),
    Action(
        "close",
        "close",
        "an idle session is closed and returns all",
        lambda d, s: d.every(s.is_open, d.no(s.inflight)),
        _close,
        source="sglang #21875",
    ),
    Action(
        "defer_close",
        "close",
        "the close of a busy session waits",
        lambda d, s: d.every(s.is_open, s.inflight),
        _defer_close,
        source="sglang #21875",
    ),
    Action("arrive", "arrive", "an ordinary request arrives", _is_unused, _arrive, {"origin_len": "length"}),
)
