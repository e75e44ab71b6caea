"""A page of the tree beside one ledger: what the ledger's effects mean for the node that holds the page.

The ledger counts its own lock (`spec/state.py`), a node of the tree the locks through it (`spec/tree.py`). Here both stand side
by side. An effect that locks, unlocks, hands pages to the tree or takes pages is a step of the node's own rules, under their
guards. The pages that a taking needs may be evicted from the tree, so whatever is not locked by then may be gone.

The page and the ledger are arbitrary, so what holds for them holds for each page and each row. `elsewhere` counts the other
rows and slots that hold the node. A match cuts nodes where it ends, so a lock goes through a page's node or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import Action
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.effects import Condition, Effect, Insert, Lock, Share, Take, Unlock
from kvproof.spec.state import WAITING, Ledger, State, described
from kvproof.spec.tree import Node, tree_evict, tree_insert, tree_lock, tree_unlock

NOTHING = SimpleNamespace()
ONE_PAGE = SimpleNamespace(size=1)


@dataclass(frozen=True)
class Place(State):
    """Where the page stands: among the pages that hold the tokens of the ledger's turn, and at which one of them."""

    of_prefix: Flag = described("flag", "place", "the page holds tokens of the ledger's turn")
    depth: Count = described("count", "place", "pages of the turn before it")
    elsewhere: Count = described("count", "ghost", "other rows and slots that hold a lock through its node")

    def is_within(self, d: Domain, pages: Count) -> Flag:
        """It is one of the turn's first `pages` pages."""
        return d.every(self.of_prefix, self.depth < pages)


def own_locks(d: Domain, s: Ledger, place: Place) -> Count:
    """Locks through the node that this ledger holds: one, if its lock's path, the protected prefix, has the page."""
    return d.where(place.is_within(d, s.tree_end), s.locks, 0)


def locks_are_counted(d: Domain, s: Ledger, node: Node, place: Place) -> Flag:
    """I11: the node counts this ledger's lock and those from elsewhere."""
    return d.every(0 <= place.elsewhere, node.holders == place.elsewhere + own_locks(d, s, place))


def match_is_current(d: Domain, s: Ledger, node: Node, place: Place) -> Flag:
    """What a queued request has matched is in the tree still when its step begins.

    This is asked of the server: it matches anew in each round, or locks at the match. A replay checks it by page ids (I12).
    """
    has_match = d.every(s.phase == WAITING, s.matched, d.no(s.lent))
    return implies(d, d.every(has_match, place.is_within(d, d.floor_pages(s.prefix_len))), node.present)


@dataclass(frozen=True)
class Followed:
    """The node after a step, and what is asked of the step."""

    node: Node
    conditions: tuple[Condition, ...]


def follow(
    d: Domain, before: Ledger, after: Ledger, effects: tuple[Effect, ...], node: Node, place: Place, is_evicted: Flag
) -> Followed:
    """The effects of a step in order, as steps of the node. `after`: the ledger without its ghosts brought up to date."""
    asked: list[Condition] = []
    ghosts = after
    locked_end = d.where(before.locks == 0, 0, before.tree_end)  # how far this ledger's lock goes

    def step(rule: Action, when: Flag, p: SimpleNamespace = NOTHING, says: str = "") -> None:
        nonlocal node
        taken = rule.run(d, node, p)
        if says:
            can = d.every(rule.applies(d, node), *(guard.holds for guard in taken.guards))
            asked.append(Condition("I11", implies(d, when, can), says))
        node = _if(d, when, taken.after, node)

    for effect in effects:
        if isinstance(effect, Lock):
            through = d.every(effect.when, place.is_within(d, effect.pages))
            step(tree_lock, through, says="a lock goes through nodes that the tree holds")
            locked_end = d.where(effect.when, effect.pages, locked_end)
        elif isinstance(effect, Unlock):
            through = d.every(effect.when, place.is_within(d, locked_end))
            step(tree_unlock, through, says="a lock that is undone was held")
        elif isinstance(effect, Share):
            shared = implies(d, d.every(effect.when, place.is_within(d, effect.pages)), node.present)
            asked.append(Condition("I12", shared, "what a row shares is in the tree when it is shared"))
        elif isinstance(effect, Insert):
            joins = d.every(effect.when, place.is_within(d, effect.pages), ghosts.tree_end <= place.depth)
            step(tree_insert, d.every(joins, d.no(node.present)), ONE_PAGE)
            step(tree_lock, d.every(joins, d.no(ghosts.locks == 0)))
            locked_end = d.where(d.every(effect.when, d.no(ghosts.locks == 0)), effect.pages, locked_end)
        elif isinstance(effect, Take):
            evicts = d.every(effect.first < effect.last, is_evicted, node.present, node.lock_ref == 0)
            step(tree_evict, evicts)
            named = implies(d, place.is_within(d, ghosts.tree_end), node.present)
            asked.append(Condition("I11", named, "what a row shares is locked when pages are taken"))
        ghosts, _ = effect.apply(d, ghosts, after)
    return Followed(node, tuple(asked))


def _if(d: Domain, flag: Flag, then: Node, otherwise: Node) -> Node:
    return otherwise.but(**{name: d.where(flag, value, getattr(otherwise, name)) for name, value in vars(then).items()})
