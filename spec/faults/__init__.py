"""Faults: what real code did wrong, each as a deviation of one action. One module is one chapter.

A fault replaces the `run` of its action and nothing else. Proofs must fail with it, a replay that it explains is
diagnosed with its name. Kinds: `fault` is a bug that was fixed (id = F and the pull request that fixed it), `release` is a
deviation that a release still has (id = S and the release), `mutation` is no real bug but keeps an invariant from
being vacuous (id = M and the invariant).
"""

# A chapter that is imported adds its faults to FAULTS: this is their order.
# ruff: noqa: I001, F401
from kvproof.spec.faults import (
    restore,
    session,
    abort,
    memory_check,
    release,
    speculation,
    window,
    chunks,
    tree,
    retract,
    releases,
    mutations,
)
from kvproof.spec.faults.fault import FAULTS, KINDS, Fault, actions_with

__all__ = ["FAULTS", "KINDS", "Fault", "actions_with"]
