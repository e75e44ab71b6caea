"""One node of the radix tree, arbitrary, and the rest of the tree as two sums.

The tree keeps running counters of evictable and protected pages and a lock count for each node; a lock goes through
all nodes of a path. The ghosts `rest_*` are the true sums over all other nodes, `holders` those who hold a lock
through this one. What holds for one arbitrary node holds for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.invariants import InvariantTable
from kvproof.spec.state import State, described


@dataclass(frozen=True)
class Node(State):
    present: Flag = described("flag", "node", "the node is in the tree")
    pages: Count = described("count", "node", "pages of the node")
    lock_ref: Count = described("count", "node", "its lock count")
    evictable: Count = described("count", "counters", "the tree's running counter of unlocked pages")
    protected: Count = described("count", "counters", "the tree's running counter of locked pages")
    holders: Count = described("count", "ghost", "rows and slots whose protected prefix goes through the node")
    rest_evictable: Count = described("count", "ghost", "unlocked pages of all other nodes, recounted")
    rest_protected: Count = described("count", "ghost", "locked pages of all other nodes, recounted")


def absent(d: Domain) -> Node:
    return Node(d.false, 0, 0, 0, 0, 0, 0, 0)


ACTIONS = ActionTable()
action = ACTIONS.action


@action(when=lambda d, s: d.no(s.present), takes={"size": "count"})
def tree_insert(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """A leaf is added.

    A new leaf is unlocked.
    """
    guards = (Guard("a node has pages", 1 <= p.size),)
    return Step(s.but(present=d.true, pages=p.size, evictable=s.evictable + p.size), guards)


@action(when=lambda d, s: s.present)
def tree_lock(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """A path through the node is locked.

    inc_lock_ref on a path through the node: with the first lock its pages become protected.
    """
    moved = d.where(s.lock_ref == 0, s.pages, 0)
    after = s.but(
        lock_ref=s.lock_ref + 1,
        holders=s.holders + 1,
        evictable=s.evictable - moved,
        protected=s.protected + moved,
    )
    return Step(after)


@action(when=lambda d, s: s.present, source="sglang #22735")
def tree_unlock(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """A holder releases the path.

    dec_lock_ref by one of the holders: with the last lock its pages become evictable.
    """
    guards = (Guard("someone holds the lock", 1 <= s.holders),)
    moved = d.where(s.lock_ref == 1, s.pages, 0)
    after = s.but(
        lock_ref=s.lock_ref - 1,
        holders=s.holders - 1,
        evictable=s.evictable + moved,
        protected=s.protected - moved,
    )
    return Step(after, guards)


@action(when=lambda d, s: s.present, takes={"size": "count"}, source="sglang #22735")
def tree_split(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """A match cuts the node.

    A match that ends inside the node cuts it in two; both parts keep the lock count. This node is one of them.
    """
    guards = (Guard("both parts have pages", d.every(1 <= p.size, p.size < s.pages)),)
    other = s.pages - p.size
    locked = d.no(s.lock_ref == 0)
    after = s.but(
        pages=p.size,
        rest_protected=s.rest_protected + d.where(locked, other, 0),
        rest_evictable=s.rest_evictable + d.where(locked, 0, other),
    )
    return Step(after, guards)


@action(when=lambda d, s: s.present)
def tree_evict(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """An unlocked leaf is evicted.

    An unlocked leaf goes.
    """
    guards = (Guard("the node is unlocked", s.lock_ref == 0),)
    return Step(s.but(present=d.false, pages=0, evictable=s.evictable - s.pages), guards)


@action(when=lambda d, s: d.true, takes={"evictable_pages": "count", "protected_pages": "count"})
def tree_elsewhere(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """Other nodes change.

    Anything happens to the other nodes; the counters follow (their own proof is this one, of another node).
    """
    guards = (Guard("sums are of pages", d.every(0 <= p.evictable_pages, 0 <= p.protected_pages)),)
    after = s.but(
        rest_evictable=p.evictable_pages,
        rest_protected=p.protected_pages,
        evictable=s.evictable + p.evictable_pages - s.rest_evictable,
        protected=s.protected + p.protected_pages - s.rest_protected,
    )
    return Step(after, guards)


def recount(d: Domain, s: Node, unlocked: Flag) -> tuple[Count, Count]:
    """Evictable and protected pages of the tree, counted anew, by whether this node is unlocked."""
    free = d.where(d.every(s.present, unlocked), s.pages, 0)
    locked = d.where(d.every(s.present, d.no(unlocked)), s.pages, 0)
    return s.rest_evictable + free, s.rest_protected + locked


ROOT, UNKNOWN = 0, -1
"""What a page of the tree continues, where it is no page: the first of a prefix the root (the padding page, which no tree
holds); and what a trace does not tell."""


def is_continued(above: int, before: int) -> bool:
    """I12, of the pages that a row shares with the tree: each stands behind the page that it continues in the tree.

    So a shared prefix is a path of the tree from the root. A row that names other pages of the tree, or the same in another
    order, reads the KV of tokens that its request does not have.

    `above`: the page that it continues in the tree; `before`: the page before it in the row; ROOT, or UNKNOWN, which may be any.
    """
    return above == before or above < 0 or before < 0


def is_of_tokens(known: int, told: int) -> bool:
    """I12, of a prefix that a row shares with the tree, or leaves to it: a prefix of the tree has one content.

    The matched pages of another prompt are a path, too. The request then reads what another one wrote.

    `known`: the number that an event told before of the prefix that ends with this page, 0 if none did; `told`: of the row's.
    """
    return known in (told, 0)


def may_be_evicted(behind: int) -> bool:
    """I13, of a page that left the tree: no page stays behind it that continues it.

    No match reaches a page whose prefix is gone, and the counters go on counting it.

    `behind`: the pages that the tree still holds and that are known to continue it.
    """
    return behind == 0


INVARIANTS = InvariantTable()
invariant = INVARIANTS.invariant


@invariant("I11", source="sglang #22735, #22790")
def locks_have_holders(d: Domain, s: Node) -> Flag:
    """A tree node's lock count equals its holders; each acquire is undone once.

    A node that keeps a lock which nobody holds is never evicted again.
    """
    return d.every(
        s.lock_ref == s.holders,
        0 <= s.holders,
        implies(d, d.no(s.present), d.every(s.holders == 0, s.pages == 0)),
        implies(d, s.present, 1 <= s.pages),
    )


@invariant("I13", source="sglang #22735")
def counters_equal_a_recount(d: Domain, s: Node) -> Flag:
    """Running counters equal a recount of the tree.

    Admission and eviction believe the counters; once they drift, requests are refused or memory runs out.
    """
    evictable, protected = recount(d, s, s.lock_ref == 0)
    return d.every(s.evictable == evictable, s.protected == protected)
