"""The batch that was launched last, and what its turns use: no other launch of it may be given that (`spec/batch.py`).

Launches that follow each other with one `step` are one batch; a launch without a `step` is of no batch that is known. Rows and
pages are asked about only with overlap: without it, a step that was prepared may never run. Steps are numbered upwards, and a new
one begins when the results of those before it are known: with overlap, of all but the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from kvproof.spec.batch import may_be_given
from kvproof.spec.trace import Event

GIVE_UP = ("finish", "abort", "retract", "insert", "window")
"""Events at which a row may let go of pages that its step in flight uses."""
OF_REUSE = "I6"
"""What a launch checks that takes pages which the batch before it may still use."""


def may_begin(overlap: bool, awaited_before: int, awaited: int) -> bool:
    """A step begins when no result is awaited but, with overlap, those of the step before it.

    `awaited`: launches of that step whose results are not known; `awaited_before`: those of steps before that.
    """
    return awaited_before == 0 and (overlap or awaited == 0)


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
    awaited: dict[str, int] = field(default_factory=dict)
    """Of turns whose last launch gives a token that is not known yet, that launch. A chunk may end without a result."""
    launches: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of turns, the last launch and the one before it."""
    windows: dict[int, int] = field(default_factory=dict)
    """As `pages`, of pages of the window pool."""

    def begin_of(self, launch: Event) -> int:
        """The first launch of the batch that this launch belongs to."""
        is_one_more = self.first > 0 and launch.step is not None and launch.step == self.step
        return self.first if is_one_more else launch.seq + 1

    def in_flight(self, turn: str, unknown: int) -> tuple[int, ...]:
        """The launches of a turn whose result may come now, where so many are not known: they come in order, and no more than
        two steps run at once."""
        return self.launches.get(turn, (0, 0))[: min(unknown, 2)]

    def contradicted_by(self, launch: Event, *, overlap: bool) -> Iterator[str]:
        """What is wrong with the step of a launch, as a sentence."""
        if launch.step is None or self.step is None:
            return
        if launch.step < self.step:
            yield f"step {launch.step} is launched behind step {self.step}: the numbers of steps go up"
        elif launch.step == self.step:
            if overlap and (before := self.launches.get(launch.turn or "", (0, 0))[0]) >= self.first:
                yield f"turn {launch.turn} is launched twice in step {launch.step}: event {before - 1} launched it, too"
        elif not may_begin(overlap, *self._count_awaited()):
            turn, number = min(self.awaited.items(), key=itemgetter(1))
            yield (
                f"step {launch.step} begins although the result of turn {turn} is not known, which event {number - 1} launched: "
                + (
                    "only the step before it may still run"
                    if overlap
                    else "without overlap no step before it still runs"
                )
            )

    def runs_twice(self, turn: str, *, overlap: bool) -> Iterator[str]:
        """What is wrong with a result of the turn, as a sentence. Without overlap only a result says that a step ran."""
        last, before = self.launches.get(turn, (0, 0))
        if not overlap and before >= self.first > 0:
            yield f"turn {turn} runs twice in step {self.step}: events {before - 1} and {last - 1} launched it"

    def _count_awaited(self) -> tuple[int, int]:
        """Launches whose results are awaited: before the batch, and of the batch."""
        before = sum(number < self.first for number in self.awaited.values())
        return before, len(self.awaited) - before

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
        for window in self.windows.keys() & set(launch.window_alloc):
            if not may_be_given(used := self.windows[window], batch):
                sentence = f"window page {window} is handed out in step {launch.step}, whose batch still uses it"
                cause = f"event {used - 1} let go of window page {window} while its row was in this step"
                yield Reused("I6", sentence, cause)

    def launch(self, launch: Event, *, gives_a_token: bool) -> None:
        """The turn is in the batch from here on."""
        number, batch = launch.seq + 1, self.begin_of(launch)
        if batch == number:
            self.before, self.first, self.step = self.first, number, launch.step
            self.rows = {}
            self.pages = {page: used for page, used in self.pages.items() if used >= self.before}
            self.windows = {window: used for window, used in self.windows.items() if used >= self.before}
        if launch.turn is not None:
            self.launches[launch.turn] = number, self.launches.get(launch.turn, (0, 0))[0]
            self.awaited.pop(launch.turn, None)
            if gives_a_token and launch.step is not None:
                self.awaited[launch.turn] = number
        if launch.step is None:  # whose results the next step has to await is not known
            self.awaited.clear()

    def use(self, launch: Event, row: int) -> None:
        """The launch reads and writes the row, and nobody else the pages that it took."""
        for page in self.taken_over(launch):
            del self.pages[page]
        for window in launch.window_alloc:
            self.windows.pop(window, None)
        self.rows[row] = launch.seq + 1

    def know_results(self, row: int) -> None:
        """All results of the row's turn are known."""
        self.rows.pop(row, None)

    def await_no_more(self, turn: str | None) -> None:
        """All results of the turn are known."""
        self.awaited.pop(turn or "", None)

    def leave(self, turn: str | None, *, overlap: bool) -> None:
        """The turn leaves. Without overlap a step that was prepared for it does not run."""
        self.await_no_more(turn)
        if not overlap:
            self.launches.pop(turn or "", None)

    def let_go(self, event: Event, row: int, pages: Iterable[int], windows: Iterable[int]) -> None:
        """The turn on this row leaves, or gives some of them back. From here on others may be given its pages."""
        if row in self.rows and (event.free or event.action != "insert"):
            self.pages.update(dict.fromkeys(pages, event.seq + 1))
            self.windows.update(dict.fromkeys(windows, event.seq + 1))
