"""A row or a page, and the batches that use it: a batch runs at once, so what one of its launches uses no other one gets.

Forwards run in the order of their launch. So a row or a page of a turn that has left while its step runs may be given to a
step that is launched behind it: that one writes later. A launch of the same batch would write at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.invariants import InvariantTable
from kvproof.spec.state import State, described

LAUNCHES = ("extend", "decode")
"""Events that launch a step of their turn."""


def may_be_given(used: int, batch: int) -> bool:
    """I5 of a row, I6 of a page: who uses it last was launched before the batch that takes it.

    Two turns of one batch on one row overwrite each other's page table; on one page, each other's KV.

    `used`: the number of the event by which it was launched, or left by a turn that was; 0: no step in flight uses it.
    `batch`: the number of the first launch of the batch that takes it.
    """
    return used < batch


@dataclass(frozen=True)
class Used(State):
    """A row, or a page that is no tree's. Batches are numbered from 1; numbers of launches in between are not needed here."""

    given: Flag = described("flag", "row or page", "a turn has it")
    batch: Count = described("count", "batch", "the batch that is put together now")
    used: Count = described("count", "batch", "the last batch in which it was used, 0: none")
    launches: Count = described("count", "ghost", "launches of the present batch that use it")


def unused(d: Domain) -> Used:
    return Used(d.false, 1, 0, 0)


ACTIONS = ActionTable()
action = ACTIONS.action


@action(when=lambda d, s: d.no(s.given), source="sglang #18803")
def batch_give(d: Domain, s: Used, p: SimpleNamespace) -> Step:
    """A turn gets it and is launched with it."""
    guards = (Guard("who used it last was launched before this batch", may_be_given(s.used, s.batch)),)
    return Step(s.but(given=d.true, used=s.batch, launches=s.launches + 1), guards)


@action(when=lambda d, s: s.given)
def batch_launch(d: Domain, s: Used, p: SimpleNamespace) -> Step:
    """The turn that has it is launched again."""
    guards = (Guard("a turn is in a batch once", may_be_given(s.used, s.batch)),)
    return Step(s.but(used=s.batch, launches=s.launches + 1), guards)


@action(when=lambda d, s: s.given)
def batch_give_back(d: Domain, s: Used, p: SimpleNamespace) -> Step:
    """The turn gives it back, whether or not its step has run."""
    return Step(s.but(given=d.false))


@action(when=lambda d, s: d.true)
def batch_next(d: Domain, s: Used, p: SimpleNamespace) -> Step:
    """The batch is launched, and the next one put together behind it."""
    return Step(s.but(batch=s.batch + 1, launches=0))


INVARIANTS = InvariantTable()
invariant = INVARIANTS.invariant


@invariant("I5", source="sglang #18803")
def one_launch_of_a_batch_uses_it(d: Domain, s: Used) -> Flag:
    """A row or a page is used by one launch of a batch.

    Two forwards of one batch would overwrite each other's KV.
    """
    return d.every(
        0 <= s.launches,
        s.launches <= 1,
        s.used <= s.batch,
        1 <= s.batch,
        implies(d, s.used < s.batch, s.launches == 0),
    )
