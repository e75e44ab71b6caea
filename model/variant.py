"""A changed rule, proved or refuted beside the built-in one: what it keeps, what it breaks, and by which run.

The other actions are as they were, so their obligations are the built-in ones; the induction of the replaced actions is done
anew, over the same invariants. Whether all actions still happen is looked for in small instances, under the changed rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvproof.model.explore import INSTANCES, reach, shortest_run_of
from kvproof.model.prove import (
    WITNESS,
    WITNESS_CONFIGS,
    Obligation,
    Progress,
    Proof,
    induction_step,
    interruptible,
    prove,
)
from kvproof.model.questions import Asker
from kvproof.spec.actions import ACTIONS, Action

# (page size, row width, configuration): where it is looked for whether a changed rule ever happens, and for a run that it
# breaks. More than these cost seconds and hold little that is new.
FIRING_INSTANCES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    *((*WITNESS, config) for config in WITNESS_CONFIGS),
    (2, 4, {}),
)
REFUTING_INSTANCES = (
    *((size, width, config) for size, width in ((1, 3), (2, 4)) for config in WITNESS_CONFIGS),
    *((size, width, {}) for size, width in INSTANCES),
)


@dataclass(frozen=True)
class Variant:
    """Actions that replace the built-in ones of the same names."""

    name: str
    replaced: Mapping[str, Action]
    summary: str = ""

    @property
    def actions(self) -> dict[str, Action]:
        return {**ACTIONS, **self.replaced}


@dataclass(frozen=True)
class Change:
    """A cell of the table whose verdict is not the built-in rule's."""

    action: str
    invariant: str
    built_in: str
    variant: str
    sentence: str


@dataclass
class Comparison:
    """`proof` is the variant's, over all actions; `built_in` that of the rules as they were."""

    variant: Variant
    built_in: Proof
    proof: Proof
    changes: list[Change] = field(default_factory=list)


class NeverFires(Exception):
    """A replaced action that can never happen: whatever it does, nothing follows from it."""

    def __init__(self, action: str, why: str) -> None:
        super().__init__(f"{action} can never happen: {why}")
        self.action, self.why = action, why


def prove_variant(
    variant: Variant,
    progress: Progress = lambda _: None,
    asker: Asker | None = None,
) -> Comparison:
    """Prove or refute the changed rules; raises NeverFires, and Interrupted with the part that is done."""
    asker = asker or Asker()
    proof = Proof(None)
    with interruptible(proof, progress) as show:
        for name, action in variant.replaced.items():
            show(f"induction: {name} of {variant.name}")
            contradictions: list[str] = []
            proof.obligations.extend(induction_step(action, contradictions, asker))
            if contradictions:
                raise NeverFires(name, "its guards contradict the invariants")
        built_in = prove(progress=show, asker=asker)
        changes = _changes(built_in, proof)
        kept = [o for o in built_in.obligations if o.action not in variant.replaced]
        proof.obligations, proof.lemmas = [*kept, *proof.obligations], built_in.lemmas
        _look_in_small_instances(variant, proof, show)
        proof.complete = True
    return Comparison(variant, built_in, proof, changes)


def _changes(built_in: Proof, proof: Proof) -> list[Change]:
    before: dict[tuple[str, str], Obligation] = {(o.action, o.invariant): o for o in built_in.obligations}
    pairs = [(before[o.action, o.invariant], o) for o in proof.obligations]
    return [
        Change(now.action, now.invariant, then.verdict, now.verdict, now.sentence or then.sentence)
        for then, now in pairs
        if then.verdict != now.verdict
    ]


def _look_in_small_instances(variant: Variant, proof: Proof, progress: Progress) -> None:
    """The shortest run of a refuted variant; of any other, whether each action still happens."""
    if any(o.verdict != "proved" for o in proof.obligations):
        progress("shortest run")
        runs = (shortest_run_of(variant.actions, size, width, **config) for size, width, config in REFUTING_INSTANCES)
        proof.counterexample = next((run for run in runs if run is not None), None)
    if proof.counterexample is not None:
        return  # what happens under a broken rule says nothing
    progress("whether every action happens")
    missing = dict.fromkeys(variant.actions)
    for size, width, config in FIRING_INSTANCES:
        reached = reach(size, width, variant.actions, **config)
        proof.reachable.append(reached)
        missing = {name: None for name in missing if not reached.taken[name]}
        if not missing:
            return
    for name in missing:
        if name in variant.replaced:
            raise NeverFires(name, f"not in any state of {_named(FIRING_INSTANCES)}")
        proof.vacuous.append(f"{name}: never happens any more in {_named(FIRING_INSTANCES)}")


def _named(instances: tuple[tuple[int, int, dict[str, Any]], ...]) -> str:
    sizes = dict.fromkeys(f"P={page_size} row width {width}" for page_size, width, _ in instances)
    return f"the instances {', '.join(sizes)}, in any configuration"
