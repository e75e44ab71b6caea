"""What happened in a trace, event by event: who did what, the lengths after it, and every change of a page's owner.

Nothing is judged here. The replayer judges; its page book is listened to, and its ledgers are read, after each event that it
accepted. So the story ends where the replay does: what follows a broken state says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.finding_files import REPORT, SCHEDULE, TRACE
from kvproof.conformance.replay.begin import begin_with_state, replayer_of
from kvproof.conformance.replay.page_book import FREE, TREE, PageBook
from kvproof.conformance.replay.replay import Progress, follow, follow_interpreted
from kvproof.conformance.replay.replayer import Headed, Replayer
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.replay.window_book import WindowBook, WindowMoves
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.model.integers import Integers
from kvproof.spec.faults import Fault
from kvproof.spec.profiles import Profile
from kvproof.spec.state import NONE, is_live, owner_is_slot
from kvproof.spec.trace import Event

CHECKS = "memory check"
OWNERS_FIRST = (FREE, TREE, CHECKS)
"""Codes 0, 1 and 2 of who acts or owns; the ledgers follow in the order in which they were met."""
NO_ROW, FROM_TURN, FROM_SLOT = range(3)
"""Whose fields hold the lengths of a row."""
LENGTH_FIELDS = {
    "c": "kv_committed_len",
    "a": "kv_allocated_len",
    "r": "cache_protected_len",
    "e": "swa_evicted_seqlen",
}


@dataclass(frozen=True)
class Subject:
    """What is explained: a trace, and the folder of the fuzzer's finding that it lies in, if it does."""

    path: Path
    finding: Path | None = None
    strict: bool = False
    profile: str | None = None

    @staticmethod
    def of(place: Path, *, strict: bool = False, profile: str | None = None) -> Subject:
        """A trace, or a folder that `kvproof fuzz` left. Raises UserError for any other folder."""
        if not place.is_dir():
            return Subject(place, None, strict, profile)
        if not (place / SCHEDULE).exists():
            inside = sorted(found.parent.name for found in place.glob(f"*/{SCHEDULE}"))
            choose = f"; it holds findings: {place / inside[0]}" if inside else ""
            raise UserError(
                f"{place} is a folder, but no finding of kvproof fuzz ({SCHEDULE} is not in it){choose}; "
                "many traces: kvproof replay"
            )
        if not (place / TRACE).exists():
            raise UserError(f"{place}: the finding has no trace: what went wrong is in {place / REPORT}")
        return Subject(place / TRACE, place, strict, profile)

    @property
    def given(self) -> Path:
        return self.finding or self.path


def _fields(whose: int) -> list[str]:
    prefix = {FROM_TURN: "", FROM_SLOT: "slot_"}
    return [prefix[whose] + name for name in LENGTH_FIELDS.values()] if whose in prefix else []


class Lengths(NamedTuple):
    """C, A, R and E of the row that a ledger holds, in tokens, and whose fields they are."""

    whose: int = NO_ROW
    c: int = 0
    a: int = 0
    r: int = 0
    e: int = 0

    @staticmethod
    def of(d: Integers, s: Any) -> Lengths:
        """All zero where the ledger holds no row."""
        if s is None:
            return Lengths()
        whose = FROM_TURN if is_live(d, s) else FROM_SLOT if owner_is_slot(d, s) else NO_ROW
        return Lengths(whose, *(getattr(s, name) for name in _fields(whose)))

    def seen_in(self, event: Event) -> Lengths:
        """These lengths with those that an event shows: the turn's where it shows these, else the slot's."""
        whose = FROM_TURN if event.after.kv_committed_len is not None else FROM_SLOT
        seen = [getattr(event.after, name) for name in _fields(whose)]
        if seen[0] is None:
            return self
        return Lengths(whose, *(was if now is None else now for now, was in zip(seen, self[1:], strict=True)))

    def __str__(self) -> str:
        evicted = f", evicted {self.e}" if self.e else ""
        return f"committed {self.c}, allocated {self.a}, protected {self.r}{evicted}"


class Moment(NamedTuple):
    """An event that is shown, and what it left. Names are codes of the story's tables; -1: none."""

    seq: int
    step: int
    action: int
    rule: int
    who: int
    turn: int
    row: int
    phase: int
    told_by: int
    c: int
    a: int
    r: int
    e: int
    taken: int
    freed: int


class Change(NamedTuple):
    """A page that changed hands. `event`: index of the moment, -1: before the first; `to`: who has it then."""

    event: int
    page: int
    to: int


class Names:
    """Codes for names, in the order in which they were met."""

    def __init__(self, first: tuple[str, ...] = ()) -> None:
        self._codes = {name: code for code, name in enumerate(first)}

    def code(self, name: str) -> int:
        return self._codes.setdefault(name, len(self._codes))

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)


class Story:
    """The events that are shown, and what was judged of the trace."""

    def __init__(self, replayer: Replayer, trace: Headed) -> None:
        self.path, self.header, self.report = replayer.path, trace.header, replayer.report
        self.events: list[Moment] = []
        self.pages: list[Change] = []
        """`to`: a code of `owners`."""
        self.window_pages: list[Change] = []
        """`page` is of the window pool, `to` the page of the full pool that names it, 0: none."""
        self.owners, self.turns, self.actions, self.rules = Names(OWNERS_FIRST), Names(), Names(), Names()
        self.bad: dict[int, Finding] = {}
        """Index of a moment -> what is wrong with it."""
        self.now: int | None = None
        """Index of the moment that happens; None: what happens is not shown yet."""

    def page_goes(self, page: int, owner: str) -> None:
        if self.now is not None:
            self.pages.append(Change(self.now, page, self.owners.code(owner)))

    def window_page_goes(self, window: int, page: int) -> None:
        if self.now is not None:
            self.window_pages.append(Change(self.now, window, page))


class ListeningWindows(WindowBook):
    """A map to the window pool that adds to a story each page that is named, or not named any more."""

    def __init__(self, pool_pages: int, story: Story) -> None:
        super().__init__(pool_pages)
        self._story = story

    def commit(self, moves: WindowMoves) -> None:
        super().commit(moves)
        for window, page in moves.behind.items():
            self._story.window_page_goes(window, page or 0)


class ListeningBook(PageBook):
    """A page book that adds to a story each page that changes hands."""

    def __init__(self, trace: Headed, d: Integers, story: Story) -> None:
        config = trace.header.config
        super().__init__(config.pool_pages, d, config.window_pages)
        self.window = ListeningWindows(config.window_pages, story)
        self._story = story

    def _own(self, page: int, owner: str) -> None:
        if self.owner(page) != owner:
            self._story.page_goes(page, owner)
        super()._own(page, owner)


class ListeningReplayer(Replayer):
    """A replayer that adds each event to a story, once it listens."""

    book: ListeningBook

    def __init__(self, trace: Headed, known: Iterable[Fault], profile: Profile | None) -> None:
        super().__init__(trace, known, profile)
        self.story = Story(self, trace)
        self.book = ListeningBook(trace, self.d, self.story)

    def listen(self) -> None:
        """From now on. What is held already is shown as held before the first event."""
        self.story.now = -1
        for page, owner in self.book.owned():
            self.story.page_goes(page, owner)
        for page, window in self.book.window.entries():
            self.story.window_page_goes(window, page)

    def feed(self, line: int, event: Event) -> Finding | None:
        story = self.story
        if story.now is None:
            return super().feed(line, event)
        story.now = len(story.events)
        judged_before = self.report.actions.copy()
        finding = super().feed(line, event)
        if finding is not None:
            story.bad[story.now] = finding
        rule = next(iter(self.report.actions - judged_before), event.action)
        story.events.append(self._moment(event, rule, is_bad=finding is not None))
        return finding

    def _moment(self, event: Event, rule: str, *, is_bad: bool) -> Moment:
        story = self.story
        about = self.ledger_of(event) or (TREE if event.action == "evict" else CHECKS)
        ledger, table = self.ledgers.get(about), self.book.table(about)
        lengths = Lengths.of(self.d, ledger)
        if is_bad:
            lengths = lengths.seen_in(event)
        return Moment(
            event.seq,
            -1 if event.step is None else event.step,
            story.actions.code(event.action),
            story.rules.code(rule),
            story.owners.code(about),
            -1 if event.turn is None else story.turns.code(event.turn),
            event.row if event.row is not None else table.row if table is not None else -1,
            NONE if ledger is None else int(ledger.phase),
            *lengths,
            taken=len(event.alloc),
            freed=len(event.free),
        )


def story_of(subject: Subject, *, since: int = 0, progress: Progress = lambda *_: None) -> Story:
    """Replay a trace and tell it from its event number `since` on. What is before is judged by whatever checker is faster."""
    reader = read_trace(subject.path)
    replayer = replayer_of(reader, strict=subject.strict, profile=subject.profile, make=ListeningReplayer)
    assert isinstance(replayer, ListeningReplayer)
    story = replayer.story
    if reader.slice is not None and not reader.slice.can_be_replayed:
        story.report.why = f"{subject.path}: {reader.slice.why_not_replayed}"
        return story
    begin_with_state(replayer, reader)
    if since > 0:
        follow(reader, replayer, progress, Chosen(), reader.first_seq + since - 1)
        if story.report.is_over:
            return story
        story.report.why = ""
    replayer.listen()
    follow(reader, replayer, progress, follow_interpreted, None)
    return story
