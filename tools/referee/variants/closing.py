"""A close that is forgotten, that waits for ever, or that comes from nowhere."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, with_guard

CLOSING = Variants("a close is dropped, or waits for ever")


@CLOSING.wrong("finish", must="closing is kept")
def finish_forgets_the_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn ends and with it the waiting close is forgotten: the session keeps its pages for ever."""
    return with_fields(built_in("finish", d, s, p), closing=d.false)


@CLOSING.wrong("retract", must="closing is kept")
def retract_forgets_the_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A retract forgets the waiting close: the session stays open though its client has left."""
    return with_fields(built_in("retract", d, s, p), closing=d.false)


@CLOSING.wrong("abort_nth", must="closing is kept")
def abort_forgets_the_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort forgets the waiting close: the next turn is admitted to a session that was closed."""
    return with_fields(built_in("abort_nth", d, s, p), closing=d.false)


@CLOSING.wrong("detach", must="closing is kept")
def detach_forgets_the_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn that is detached takes the waiting close along: the slot's pages are never returned."""
    return with_fields(built_in("detach", d, s, p), closing=d.false)


@CLOSING.wrong("refuse", must="closing is kept")
def refusal_reopens(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A refused second turn cancels the close: any client can keep a session of another alive."""
    return with_fields(built_in("refuse", d, s, p), closing=d.false)


@CLOSING.wrong("check", must="closing is kept")
def check_reopens(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The memory check changes state: it forgets that a close waits."""
    return with_fields(built_in("check", d, s, p), closing=d.false)


@CLOSING.wrong("defer_close", must="expectation: a close that waits for a turn")
def close_of_a_busy_session_is_lost(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The close of a busy session does nothing and is not noted: the session is never closed."""
    return Step(s)


@CLOSING.wrong("defer_close", must="I15")
def close_at_once(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The close of a busy session closes it at once: the turn in flight runs on without a session."""
    return Step(s.but(is_open=d.false, closing=d.false))


@CLOSING.wrong("close", must="stuck: a waiting close is never carried out")
def close_refuses_who_waited(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close that had to wait is never carried out: the session holds its pages and admits no turn."""
    return with_guard(built_in("close", d, s, p), "no close was deferred", d.no(s.closing))


def never_used(d: Domain, s: Ledger) -> Flag:
    return d.every(s.is_open, d.no(s.inflight), s.checkpoint_len == d.zero)


@CLOSING.wrong("close", must="stuck: a session with a turn can never be closed", applies=never_used)
def close_only_what_was_not_used(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session that finished a turn can never be closed: its pages stay taken."""
    return built_in("close", d, s, p)


def without_slot(d: Domain, s: Ledger) -> Flag:
    return d.every(s.is_open, d.no(s.inflight), d.no(s.slot_held))


@CLOSING.wrong("close", must="stuck: a session with a slot can never be closed", applies=without_slot)
def close_only_without_a_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session that holds a slot can never be closed: the slot's pages are never returned."""
    return built_in("close", d, s, p)


def whenever_open(d: Domain, s: Ledger) -> Flag:
    return s.is_open


@CLOSING.wrong("defer_close", must="two rules apply to one close", applies=whenever_open)
def close_of_an_idle_session_waits(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An idle session may wait for a turn that does not exist: its close is never carried out."""
    return built_in("defer_close", d, s, p)


def not_closing(d: Domain, s: Ledger, step: Step) -> Step:
    return with_guard(step, "no close waits", d.no(s.closing))


def abort_first_unless_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return not_closing(d, s, built_in("abort_first", d, s, p))


def abort_nth_unless_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return not_closing(d, s, built_in("abort_nth", d, s, p))


def abort_queued_unless_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return not_closing(d, s, built_in("abort_queued", d, s, p))


def abort_retracted_unless_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return not_closing(d, s, built_in("abort_retracted", d, s, p))


ABORTS = {
    "abort_first": abort_first_unless_closing,
    "abort_nth": abort_nth_unless_closing,
    "abort_queued": abort_queued_unless_closing,
    "abort_retracted": abort_retracted_unless_closing,
}


@CLOSING.wrong("finish", must="stuck: a turn never ends", also=ABORTS)
def turn_waits_for_the_close(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn waits for the close and the close for the turn: neither ever ends."""
    return not_closing(d, s, built_in("finish", d, s, p))


@CLOSING.wrong("finish", must="never happens")
def every_finish_closes(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Each finish marks its session as closing: no session ever takes a second turn."""
    return with_fields(built_in("finish", d, s, p), closing=d.true)


@CLOSING.wrong("open", must="never happens")
def open_as_closing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session is opened as one that is being closed: it takes no turn at all."""
    return with_fields(built_in("open", d, s, p), closing=d.true)


@CLOSING.wrong("abort_queued", must="a close comes from a client only")
def abort_closes(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Aborting a queued turn marks its session as closing: the client's next turn is refused."""
    return with_fields(built_in("abort_queued", d, s, p), closing=s.is_open)
