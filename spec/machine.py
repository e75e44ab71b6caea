"""A machine: a state, the actions on it, the invariants of it. The specification is a few of them, each proven by itself.

The *ledger* (`spec/state.py`) is the large one: a session, its slot, its turn. The others are small and hold what no ledger
sees: a node of the radix tree with its lock and counters (`spec/tree.py`), the pool's pages and what was charged for them
(`spec/pool.py`), a row or a page that steps in flight use (`spec/batch.py`), an admission that may fail half-way and a free that
waits (`spec/staging.py`), a request that is retracted again and again (`spec/progress.py`). `spec/shared_prefix.py` puts the
ledger and the node side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.spec import batch, pool, progress, staging, tree
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.domain import Domain
from kvproof.spec.invariants import AUXILIARY, INVARIANTS, Invariant
from kvproof.spec.state import Ledger, pristine


@dataclass(frozen=True)
class Machine:
    name: str
    summary: str
    state: type
    start: Callable[[Domain], Any]
    actions: Mapping[str, Action]
    invariants: Mapping[str, Invariant]
    auxiliary: Mapping[str, Invariant]

    @property
    def all_invariants(self) -> dict[str, Invariant]:
        return {**self.invariants, **self.auxiliary}


LEDGER = Machine(
    "ledger",
    "a session, its slot and its turn, or an ordinary request",
    Ledger,
    pristine,
    ACTIONS,
    INVARIANTS,
    AUXILIARY,
)
TREE = Machine(
    "tree",
    "a node of the radix tree, its lock and the running counters",
    tree.Node,
    tree.absent,
    tree.ACTIONS,
    tree.INVARIANTS,
    {},
)
ADMISSION = Machine(
    "admission",
    "an admission that stages resources and may fail",
    staging.Admission,
    staging.idle,
    staging.ADMISSION_ACTIONS,
    staging.ADMISSION_INVARIANTS,
    {},
)
DEFERRED = Machine(
    "deferred",
    "a free that is carried out later",
    staging.Deferred,
    staging.nothing_deferred,
    staging.DEFERRED_ACTIONS,
    staging.DEFERRED_INVARIANTS,
    {},
)
POOL = Machine(
    "pool",
    "the pool's pages, and what admitted requests were charged",
    pool.Pool,
    pool.empty,
    pool.ACTIONS,
    pool.INVARIANTS,
    {},
)
BATCH = Machine(
    "batch",
    "a row or a page, and the batches that use it",
    batch.Used,
    batch.unused,
    batch.ACTIONS,
    batch.INVARIANTS,
    {},
)
PROGRESS = Machine(
    "progress",
    "a request that is retracted again and again",
    progress.Request,
    progress.queued,
    progress.ACTIONS,
    progress.INVARIANTS,
    {},
)

MACHINES: tuple[Machine, ...] = (LEDGER, TREE, POOL, BATCH, ADMISSION, DEFERRED, PROGRESS)


def machine_of(action: str) -> Machine:
    """The machine that an action belongs to; names are unique over all machines."""
    return next(m for m in MACHINES if action in m.actions)


def every_invariant() -> dict[str, Invariant]:
    """The invariants of all machines by id, auxiliary ones left out. The same id may be stated of several machines."""
    found: dict[str, Invariant] = {}
    for m in MACHINES:
        for invariant in m.invariants.values():
            found.setdefault(invariant.id, invariant)
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))
