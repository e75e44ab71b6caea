"""The batch that was launched last, and what its turns use: no other launch of it may be given that (`spec/batch.py`).

Launches that follow each other with one `step` are one batch; a launch without a `step` is of no batch that is known. Only with
overlap they are asked about: without it, a step that was prepared may never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kvproof.spec.batch import may_be_given
from kvproof.spec.trace import Event

GIVE_UP = ("finish", "abort", "retract", "insert")
"""Events at which a row may let go of pages that its step in flight uses."""
OF_REUSE = "I6"
"""What a launch checks that takes pages which the batch before it may still use."""


@dataclass(frozen=True)
class Reused:
    """A row or a page that a launch may not be given: the invariant, a sentence, and how its batch came to use it."""

    invariant: str
    sentence: str
    cause: str


@dataclass
class BatchInFlight:
    """Numbers are those of events: their seq, and one more. 0: none."""

    step: int | None = None
    first: int = 0
    """The first launch of the batch."""
    before: int = 0
    """The first launch of the batch before it."""
    rows: dict[int, int] = field(default_factory=dict)
    """Of rows that the batch reads and writes, the launch."""
    pages: dict[int, int] = field(default_factory=dict)
    """Of pages that a row of this batch or of the one before let go of while its step ran, the event at which it did."""

    def begin_of(self, launch: Event) -> int:
        """The first launch of the batch that this launch belongs to."""
        is_one_more = self.first > 0 and launch.step is not None and launch.step == self.step
        return self.first if is_one_more else launch.seq + 1

    def taken_over(self, launch: Event) -> list[int]:
        """Pages that the launch takes and that the batch before it, or its own, may still use."""
        return [page for page in launch.alloc if page in self.pages]

    def reused_by(self, launch: Event, row: int) -> Iterator[Reused]:
        """What the launch is given that its own batch uses."""
        batch = self.begin_of(launch)
        if not may_be_given(used := self.rows.get(row, 0), batch):
            sentence = f"row {row} is launched twice in step {launch.step}, which runs as one batch"
            yield Reused("I5", sentence, f"event {used - 1} launched row {row} in this step")
        for page in self.taken_over(launch):
            if not may_be_given(used := self.pages[page], batch):
                sentence = f"page {page} is handed out in step {launch.step}, whose batch still uses it"
                yield Reused("I6", sentence, f"event {used - 1} let go of page {page} while its row was in this step")

    def launch(self, launch: Event, row: int) -> None:
        number, batch = launch.seq + 1, self.begin_of(launch)
        if batch == number:
            self.before, self.first, self.step = self.first, number, launch.step
            self.rows = {}
            self.pages = {page: used for page, used in self.pages.items() if used >= self.before}
        for page in self.taken_over(launch):
            del self.pages[page]
        self.rows[row] = number

    def know_results(self, row: int) -> None:
        """All results of the row's turn are known."""
        self.rows.pop(row, None)

    def let_go(self, event: Event, row: int, pages: Iterable[int]) -> None:
        """The turn on this row leaves, or gives its duplicates back. From here on others may be given its pages."""
        if row in self.rows and (event.free or event.action != "insert"):
            self.pages.update(dict.fromkeys(pages, event.seq + 1))
