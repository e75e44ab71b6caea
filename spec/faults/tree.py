"""Faults of the radix tree's locks."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain
from kvproof.spec.faults.fault import fault
from kvproof.spec.tree import Node, tree_unlock


@fault("F22735", of="tree_unlock", needs="tree split", source="sglang #22735", breaks=("I11", "I13"))
def another_node_is_unlocked(d: Domain, s: Node, p: SimpleNamespace) -> Step:
    """Release matches the prefix again; the match finds or cuts off another node, and takes a lock that is not its own."""
    return Step(tree_unlock.run(d, s, p).after.but(holders=s.holders))
