"""The session around its turns: open, create, refuse, detach, close; and the arrival of ordinary requests."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.actions.release import release_slot
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import AskClose, Begin, End, EndSession
from kvproof.spec.state import NONE, WAITING, Ledger, end_turn

SESSION_ACTIONS = ActionTable()
action = SESSION_ACTIONS.action


def _is_unused(d: Domain, s: Ledger) -> Flag:
    return d.every(d.no(s.is_open), d.no(s.plain), s.phase == NONE)


@action("open", when=_is_unused)
def open(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session is opened."""
    return Step(s.but(is_open=d.true))


@action(
    "create",
    when=lambda d, s: d.every(s.is_open, d.no(s.inflight)),
    takes={"origin_len": "length", "too_long": "flag", "logprob": "flag"},
    source="sglang #22790",
)
def create(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An idle session admits a turn and sets its marker.

    The turn's input is all earlier tokens and at least one new one; a too-long input is cut to one token.
    """
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
    )
    return Step(after, guards, (Begin(p.origin_len, d.true),))


@action("create", when=lambda d, s: d.every(s.is_open, s.inflight), source="sglang #22790")
def refuse(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A busy session refuses a second turn.

    The turn takes nothing and changes nothing.
    """
    return Step(s)


@action("match", when=lambda d, s: s.is_open, source="sglang #22790", of_another=True)
def pass_by(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused turn is answered outside its session, where it changes nothing.

    It is answered as an ordinary request; to the session it never comes back.
    """
    return Step(s)


@action(
    "match",
    when=lambda d, s: d.every(s.is_open, s.phase == WAITING, s.pre_aborted, s.slot_held),
    source="sglang #22790",
)
def detach(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A pre-aborted turn leaves a session that holds a slot.

    It leaves before it can touch the slot, and continues as an ordinary request.
    """
    return Step(end_turn(d, s).but(inflight=d.false), effects=(End(d.true),))


@action("close", when=lambda d, s: d.every(s.is_open, d.no(s.inflight)), source="sglang #21875")
def close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An idle session is closed and returns all.

    The tree lock is dropped, row [R, A) freed as whole pages, the row returned; the session is gone.
    """
    released, effects = release_slot(d, s, s.slot_kv_allocated_len)
    after = released.but(is_open=d.false, closing=d.false, checkpoint_len=d.zero)
    return Step(after, effects=(*effects, EndSession()))


@action("close", when=lambda d, s: d.every(s.is_open, s.inflight), source="sglang #21875")
def defer_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The close of a busy session waits.

    A turn in flight still uses the row: the close waits for its end.
    """
    return Step(s.but(closing=d.true), effects=(AskClose(),))


@action("arrive", when=_is_unused, takes={"origin_len": "length"})
def arrive(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request arrives."""
    guards = (Guard("a request has at least one input token", d.one <= p.origin_len),)
    after = s.but(plain=d.true, phase=WAITING, origin_len=p.origin_len)
    return Step(after, guards, (Begin(p.origin_len, d.false),))
