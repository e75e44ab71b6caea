"""The census where the pools are on a device: pages are counted there, and nobody waits for what comes out.

The verdict of a step, 8 bytes, is read one step later (`VerdictReader`). What the books alone tell (rows, locks, sums) is
reported in its own step; and as that ends the run anyway, the verdicts that are still on their way are then waited for.
"""

from __future__ import annotations

from collections import defaultdict, deque

from kvproof.impl.census import MOST_OF_A_KIND, WINDOW, Census, CensusViolation, book_violations
from kvproof.impl.device import Device
from kvproof.impl.page_ownership import Holdings, Tables, page_owners, window_page_owners
from kvproof.impl.state import EngineState, MemoryTerms
from kvproof.kernels.census import Census as PageCensus
from kvproof.kernels.census import PageOwners, VerdictReader, describe, page_census

Found = defaultdict[int, list[str]]
"""By step, what was wrong in it."""


def tables_of(device: Device) -> Tables:
    pools = device.pools
    return Tables(
        pools.req_to_token,
        pools.free_pages.pages,
        pools.full_to_window,
        pools.window_free_pages.pages,
        device.stream,
    )


class DeviceCensus(Census):
    def __init__(self, state: EngineState, device: Device) -> None:
        super().__init__(state)
        self._device = device
        self._full = _LateVerdicts(device, "")
        self._window = _LateVerdicts(device, WINDOW)

    def take(self, terms: MemoryTerms | None = None) -> None:
        """Count the pages of this step, judge the books, and read the verdict of the step before."""
        state = self.state
        self._device.catch_up()
        held = Holdings.of(state)
        with self._device.stream.running():
            tables = tables_of(self._device)
            self._submit(self._full, page_owners(state, held, tables), held)
            if state.window_pool is not None:
                self._submit(self._window, window_page_owners(state.window_pool, held, tables), held)
            in_books = book_violations(state, held, terms or state.all_memory_terms())
            found = self._read(drain=bool(in_books))
        found[state.reporter.step] += in_books
        self._raise_the_first(found)

    def settle(self) -> None:
        """At the end of a run: the last verdict is waited for."""
        with self._device.stream.running():
            found = self._read(drain=True)
        self._raise_the_first(found)

    def _submit(self, verdicts: _LateVerdicts, owners: PageOwners, held: Holdings) -> None:
        verdicts.submit(page_census(owners), self.state.reporter.step, [holder.name for holder in held.holders])

    def _read(self, drain: bool) -> Found:
        found: Found = defaultdict(list)
        self._full.read_into(found, drain)
        self._window.read_into(found, drain)
        return found

    @staticmethod
    def _raise_the_first(found: Found) -> None:
        for step in sorted(step for step, sentences in found.items() if sentences):
            raise CensusViolation.of_step(step, found[step])


class _LateVerdicts:
    """The verdicts of one pool, with what is needed to put one into words: the step, and the holders of that step."""

    def __init__(self, device: Device, pool: str) -> None:
        self._reader = VerdictReader(device.pools.req_to_token.device)
        self._pool = pool
        self._submitted: deque[tuple[PageCensus, int, list[str]]] = deque(maxlen=2)

    def submit(self, census: PageCensus, step: int, names: list[str]) -> None:
        self._reader.submit(census)
        self._submitted.append((census, step, names))

    def read_into(self, found: Found, drain: bool) -> None:
        bad = self._reader.drain() if drain else self._reader.read()
        for census, step, names in self._submitted:
            if census is bad:
                found[step] += [f"{self._pool}{each}" for each in describe(census, names, limit=MOST_OF_A_KIND)]
