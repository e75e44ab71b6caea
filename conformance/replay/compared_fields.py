"""Which values of an event are compared with the rule, and which fields of the ledger each tells of.

Nothing here is a table by hand: the code that compares (`judge.comparisons`) is run on terms, and so are the invariants. A value
that is compared tells of the fields that its expected value reads. It could falsify an invariant that reads one of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.replay.judge import comparisons
from kvproof.model.oracle import Outcome
from kvproof.model.tracing import Path, Term, Tracing, reads_of
from kvproof.spec.actions import Action
from kvproof.spec.invariants import Invariant
from kvproof.spec.state import FIELDS, Ledger
from kvproof.spec.trace import Observed

COMPARED_PARAMS = ("admitted", "inserted", "fill_len", "tokens", "finished_len", "prefix_id", "key_len", "dup_len")
"""Parameters that are compared like a field of `after`."""
SHARED = "shared"
"""The pages of a row that are the tree's after an insert."""
TERMS = "terms"
"""The counts that a memory check read."""
BUSY = "busy"
"""Whether a memory check says that a batch is there."""
STEP = "step"
"""The step of a launch."""
SHOWN = (*Observed.model_fields, *COMPARED_PARAMS, SHARED, TERMS, BUSY, STEP)
"""All values that an event may show, by name."""
OF_A_SESSION = frozenset(
    ("attached", *(f.name for f in FIELDS if f.metadata["group"] in ("session", "slot") and f.name in SHOWN))
)
"""Values of a session: an event that names none has nothing to show of it."""


@dataclass(frozen=True)
class TracedComparison:
    """One value that an event of an action may show, as terms of the ledger before (`s`) and after (`t`).

    `is_due`: when it is compared, if it was seen at all. `seen`: a read of `after_NAME`, `param_NAME`, SHARED or STEP.
    """

    is_due: Any
    expected: Any
    seen: Term

    @property
    def fields(self) -> frozenset[str]:
        """Fields of the ledger that it tells of."""
        return ledger_fields_in(self.expected)


def ledger_fields_in(*terms: Any) -> frozenset[str]:
    """The fields of a ledger, before or after, that terms read."""
    return frozenset(name.partition(".")[2] for name in reads_of(*terms) if name.startswith(("s.", "t.")))


def traced_comparisons(d: Tracing, action: Action) -> dict[str, TracedComparison]:
    """What `judge.comparisons` compares for an event of this action, by name."""
    outcome = Outcome(action, d.arbitrary(Ledger), d.arbitrary(Ledger, prefix="t"), (), (), ())
    event: Any = SimpleNamespace(
        action=action.event,
        params={name: d.read(f"param_{name}") for name in COMPARED_PARAMS},
        shared=d.read(SHARED),
        step=d.read(STEP),
        after=SimpleNamespace(**{name: d.read(f"after_{name}") for name in Observed.model_fields}),
    )
    paths: list[Path[dict[str, Any]]] = d.every_path(
        lambda: {name: (expected, seen) for name, _, expected, seen in comparisons(d, outcome, event)}  # type: ignore[arg-type]
    )
    found = {name: both for path in paths for name, both in path.result.items()}
    return {
        name: TracedComparison(
            d.merged([Path(p.decisions, name in p.result) for p in paths]),
            d.merged([Path(p.decisions, p.result.get(name, (expected, seen))[0]) for p in paths]),
            seen,
        )
        for name, (expected, seen) in found.items()
    }


@functools.lru_cache(maxsize=8)
def fields_of_invariants(invariants: tuple[Invariant, ...]) -> Mapping[str, frozenset[str]]:
    """The fields of the ledger that each invariant reads."""
    d = Tracing()
    s = d.arbitrary(Ledger)
    return {i.id: ledger_fields_in(i.holds(d, s)) for i in invariants}


def invariants_about(fields: Iterable[str], invariants: Iterable[Invariant]) -> list[str]:
    """The invariants that read one of these fields: a wrong value of it could break them."""
    read, named = fields_of_invariants(tuple(invariants)), frozenset(fields)
    return [name for name, those in read.items() if not named.isdisjoint(those)]
