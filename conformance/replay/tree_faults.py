"""Which faults of the tree explain what no ledger sees: counters that are off, an eviction of a locked page.

No event tells of a lock. A memory check shows what became of the counters, an eviction what was taken for unlocked; a fault
explains that if the small machine of a tree node comes to the same by it (`model/witness_machines.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.memory_check import OF_THE_TREE, PROTECTED
from kvproof.conformance.replay.page_book import Problem
from kvproof.model.witness_machines import drifts, lets_evict_what_is_held
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.machine import TREE


def faults_behind_counters(differences: Sequence[Difference]) -> list[Fault]:
    """`differences` are all that a memory check read wrongly; none if others than the tree's counters are among them."""
    if not {d.name for d in differences} <= {OF_THE_TREE, PROTECTED}:
        return []
    off = {d.name: _sign(d) for d in differences}
    seen = off.get(OF_THE_TREE, 0), off.get(PROTECTED, 0)
    return _real(lambda fault: seen in drifts(fault.id))


def faults_behind_eviction(problems: Sequence[Problem]) -> list[Fault]:
    if any(problem.invariant != "I11" for problem in problems):
        return []
    return _real(lambda fault: lets_evict_what_is_held(fault.id))


def _real(explains: Callable[[Fault], bool]) -> list[Fault]:
    """Of the real faults of the tree those that explain it; mutations explain nothing."""
    return [f for f in FAULTS.values() if f.machine is TREE and f.kind != "mutation" and explains(f)]


def _sign(difference: Difference) -> int:
    assert isinstance(difference.seen, int) and isinstance(difference.expected, int)
    return 1 if difference.seen > difference.expected else -1
