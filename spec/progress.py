"""Progress: one arbitrary request that may be retracted again and again, and must get to its end all the same.

A request is finite: each decode step gives at least one output token, and a retract keeps them. So it ends if no cycle of
prefill and retract passes without a decode step. That is what the invariant says: each retract of a request is paid for
with a decode step since its prefill. (Pool pressure alone cannot make such a cycle: the pages that a prefill needs are
charged, and a charged request decodes at least once before the pool can run short.)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.invariants import InvariantTable
from kvproof.spec.state import State, described


@dataclass(frozen=True)
class Request(State):
    running: Flag = described("flag", "request", "it is in the decode batch; else it waits")
    decoded: Flag = described("flag", "request", "it has decoded since its last prefill")
    output: Count = described("count", "request", "output tokens, kept by a retract")
    retracts: Count = described("count", "ghost", "how often it was retracted")


def queued(d: Domain) -> Request:
    return Request(d.false, d.false, 0, 0)


ACTIONS = ActionTable()
action = ACTIONS.action


@action(when=lambda d, s: d.no(s.running))
def prefill_again(d: Domain, s: Request, p: SimpleNamespace) -> Step:
    """A waiting request is prefilled."""
    return Step(s.but(running=d.true))


@action(when=lambda d, s: s.running)
def decode_once(d: Domain, s: Request, p: SimpleNamespace) -> Step:
    """A running request decodes."""
    return Step(s.but(decoded=d.true, output=s.output + 1))


@action(when=lambda d, s: s.running, source="sglang-jax #994")
def force_retract(d: Domain, s: Request, p: SimpleNamespace) -> Step:
    """A running request is retracted by force.

    The test switch retracts only what has decoded since its prefill (sglang's interval and its guard on prefill).
    """
    guards = (Guard("it has decoded since its prefill", s.decoded),)
    return Step(s.but(running=d.false, decoded=d.false, retracts=s.retracts + 1), guards)


INVARIANTS = InvariantTable()
invariant = INVARIANTS.invariant


@invariant("I18", source="sglang-jax #994")
def retracts_are_paid_for(d: Domain, s: Request) -> Flag:
    """An admitted request can progress: no cycle of retracts without a decode step.

    A request that is prefilled and retracted in turn, and never decodes, never ends: a livelock.
    """
    return d.every(s.retracts <= s.output, implies(d, s.decoded, s.retracts + 1 <= s.output))
