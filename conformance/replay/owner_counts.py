"""How many pages each kind of owner has right now, in each pool, by the page book.

`compiled/state.py` counts them in the arrays of the compiled checker.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kvproof.conformance.replay.page_book import FREE, TREE
from kvproof.conformance.replay.replayer import Replayer
from kvproof.spec.state import PREFILL, RUNNING, WAITING, is_live
from kvproof.spec.trace import Event

FULL, WINDOW = "full", "window"
OWNERS = ("free", "tree", "slots", "running")
"""`slots`: held by sessions between their turns; `running`: by requests that are being prefilled or decoded."""

Pool = dict[str, int]
Pools = dict[str, Pool]


class Load(NamedTuple):
    """How many sessions there are, and turns and ordinary requests by where they stand."""

    sessions: int = 0
    running: int = 0
    prefilling: int = 0
    waiting: int = 0


def pools_of_book(replayer: Replayer) -> Pools:
    book, d = replayer.book, replayer.d
    kinds = {FREE: "free", TREE: "tree"}

    def kind(owner: str) -> str:
        ledger = replayer.ledgers.get(owner)
        return kinds.get(owner) or ("running" if ledger is not None and is_live(d, ledger) else "slots")

    full = dict.fromkeys(OWNERS, 0)
    for owner in (FREE, TREE, *replayer.ledgers):
        full[kind(owner)] += book.count(owner)
    if not book.window.is_followed:
        return {FULL: full}
    behind = Counter(kind(book.owner(page)) for page in book.window.mapped())
    return {FULL: full, WINDOW: {**{o: behind[o] for o in OWNERS}, "free": book.window.free_count()}}


def load_of_book(replayer: Replayer) -> Load:
    phases = Counter(ledger.phase for ledger in replayer.ledgers.values())
    sessions = sum(bool(ledger.is_open) for ledger in replayer.ledgers.values())
    return Load(sessions, phases[RUNNING], phases[PREFILL], phases[WAITING])


class MovedPages:
    """Pages taken and given back by the trace's own account. Which page, and whether it was right, is not asked any more."""

    def __init__(self, pools: Pools) -> None:
        self._free = {name: pool["free"] for name, pool in pools.items()}
        self._all = {name: sum(pool.values()) for name, pool in pools.items()}

    def count(self, events: list[Event]) -> None:
        for event in events:
            self._free[FULL] += len(event.free) - len(event.alloc)
            if WINDOW in self._free:
                self._free[WINDOW] += len(event.window_free) - len(event.window_alloc)

    def pools(self) -> Pools:
        return {name: {"free": free, "taken": self._all[name] - free} for name, free in self._free.items()}
