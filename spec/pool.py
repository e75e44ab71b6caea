"""The pool's pages and what admissions were charged: what was charged is there when it is taken.

One arbitrary request, and the others of its batch as a sum. A step admits requests one after the other, each with a charge in
tokens, and then takes their pages. What is on the free list is taken first; the rest is evicted. All that no lock holds can be
evicted, leaf by leaf, because a lock goes through the whole path of a prefix (`spec/shared_prefix.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, Length, larger
from kvproof.spec.effects import covers
from kvproof.spec.invariants import InvariantTable
from kvproof.spec.state import State, described


@dataclass(frozen=True)
class Pool(State):
    free: Count = described("count", "pool", "pages on the free list")
    evictable: Count = described("count", "pool", "pages of the tree that no lock holds")
    charge: Length = described("length", "ghost", "tokens that the request was charged and has not taken")
    others: Length = described("length", "ghost", "tokens that other requests were charged and have not taken")


def empty(d: Domain) -> Pool:
    return Pool(0, 0, d.zero, d.zero)


ACTIONS = ActionTable()
action = ACTIONS.action
HAS_PAGES = "a number of pages"


def fits(d: Domain, s: Pool, charged: Length) -> Flag:
    """So many tokens fit into what is free or can be evicted."""
    return charged <= d.tokens(s.free + s.evictable)


@action(when=lambda d, s: s.charge == d.zero, takes={"charge": "length", "locked": "count"}, source="sglang-jax #994")
def pool_admit(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """A request is admitted and charged.

    Its prefix is locked first: `locked` pages can be evicted no more, and only then is the charge compared with what is there.
    """
    locked = s.but(evictable=s.evictable - p.locked)
    guards = (
        Guard("pages of the tree are locked", d.every(0 <= p.locked, p.locked <= s.evictable)),
        Guard("the charge fits beside what others were charged", fits(d, locked, s.others + p.charge)),
    )
    return Step(locked.but(charge=p.charge), guards)


@action(when=lambda d, s: d.true, takes={"pages": "count"})
def pool_take(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """An admitted request takes its pages.

    From the free list; what is missing there is evicted.
    """
    guards = (Guard("the charge covers what the allocator takes", covers(d, s.charge, p.pages)),)
    evicted = larger(d, p.pages - s.free, 0)
    return Step(s.but(free=s.free + evicted - p.pages, evictable=s.evictable - evicted, charge=d.zero), guards)


@action(when=lambda d, s: d.true, takes={"pages": "count"})
def pool_give_back(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """Pages are freed."""
    return Step(s.but(free=s.free + p.pages), (Guard(HAS_PAGES, 0 <= p.pages),))


@action(when=lambda d, s: d.true, takes={"pages": "count"})
def pool_unlock(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """Pages of the tree lose their last lock."""
    return Step(s.but(evictable=s.evictable + p.pages), (Guard(HAS_PAGES, 0 <= p.pages),))


STAYS = "what this request was charged stays"


@action(when=lambda d, s: d.true, takes={"others": "length"})
def pool_charge_others(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """Other requests are charged, or take what they were charged."""
    return Step(s.but(others=p.others), (Guard(STAYS, fits(d, s, s.charge + p.others)),))


@action(when=lambda d, s: d.true, takes={"free": "count", "evictable": "count"})
def pool_elsewhere(d: Domain, s: Pool, p: SimpleNamespace) -> Step:
    """Other requests lock, take and free pages.

    They leave what was charged: their own proof is this one, of another request.
    """
    after = s.but(free=p.free, evictable=p.evictable)
    guards = (
        Guard(HAS_PAGES, d.every(0 <= p.free, 0 <= p.evictable)),
        Guard(STAYS, fits(d, after, s.charge + s.others)),
    )
    return Step(after, guards)


INVARIANTS = InvariantTable()
invariant = INVARIANTS.invariant


@invariant("I18", source="sglang-jax #994")
def what_was_charged_is_there(d: Domain, s: Pool) -> Flag:
    """What admitted requests were charged is free or can be evicted, so the allocator does not fail.

    An admission that counts pages which its own lock keeps lets the allocator fail in a batch that was already admitted.
    """
    return d.every(0 <= s.free, 0 <= s.evictable, fits(d, s, s.charge + s.others))
