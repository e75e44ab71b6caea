"""What happened in a trace, event by event, as columns: who did what, the lengths after it, and every change of a page's owner.

Nothing is judged here. The replayer judges; its page book is listened to, and its ledgers are read, after each event that it
accepted. So the story ends where the replay does: what follows a broken state says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.begin import begin_with_state, replayer_of
from kvproof.conformance.replay.page_book import FREE, TREE, PageBook
from kvproof.conformance.replay.replay import Progress, follow, follow_interpreted
from kvproof.conformance.replay.replayer import Headed, Replayer
from kvproof.conformance.replay.verdict import Finding, Report
from kvproof.conformance.replay.window_book import WindowBook, WindowMoves
from kvproof.conformance.report.explain.subject import Subject
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.model.integers import Integers
from kvproof.spec.faults import Fault
from kvproof.spec.profiles import Profile
from kvproof.spec.state import NONE, is_live, owner_is_slot
from kvproof.spec.trace import Event, Header

CHECKS = "memory check"
OWNERS_FIRST = (FREE, TREE, CHECKS)
"""Codes 0, 1 and 2 of who acts or owns; the ledgers follow in the order in which they were met."""
FROM_TURN, FROM_SLOT, NO_ROW = "turn", "slot", ""


@dataclass(frozen=True)
class Lengths:
    """C, A, R and E of the row that a ledger holds, in tokens, and whether the turn's or the slot's fields tell them."""

    told_by: str = NO_ROW
    c: int = 0
    a: int = 0
    r: int = 0
    e: int = 0

    @staticmethod
    def of(d: Integers, s: Any) -> Lengths:
        """All zero where the ledger holds no row."""
        if s is not None and is_live(d, s):
            return Lengths(
                FROM_TURN, s.kv_committed_len, s.kv_allocated_len, s.cache_protected_len, s.swa_evicted_seqlen
            )
        if s is not None and owner_is_slot(d, s):
            return Lengths(
                FROM_SLOT,
                s.slot_kv_committed_len,
                s.slot_kv_allocated_len,
                s.slot_cache_protected_len,
                s.slot_swa_evicted_seqlen,
            )
        return Lengths()

    def seen_in(self, event: Event) -> Lengths:
        """These lengths with what an event tells of them: the turn's where it tells those, else the slot's."""
        after = event.after
        prefix, told_by = ("", FROM_TURN) if after.kv_committed_len is not None else ("slot_", FROM_SLOT)
        names = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "swa_evicted_seqlen")
        seen = [getattr(after, prefix + name) for name in names]
        if seen[0] is None:
            return self
        old = (self.c, self.a, self.r, self.e)
        return Lengths(told_by, *(was if now is None else now for now, was in zip(seen, old, strict=True)))


@dataclass
class Columns:
    """One value for each event that is shown. `who`: a code of `Story.owners`; `turn`: of `Story.turns`, -1: none."""

    seq: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    action: list[int] = field(default_factory=list)
    rule: list[int] = field(default_factory=list)
    who: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    told_by: list[int] = field(default_factory=list)
    c: list[int] = field(default_factory=list)
    a: list[int] = field(default_factory=list)
    r: list[int] = field(default_factory=list)
    e: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)


@dataclass
class Changes:
    """Pages that changed hands, in order. `event`: index into the columns, -1: before the first; `to`: who has it then."""

    event: list[int] = field(default_factory=list)
    page: list[int] = field(default_factory=list)
    to: list[int] = field(default_factory=list)

    def add(self, event: int, page: int, to: int) -> None:
        self.event.append(event)
        self.page.append(page)
        self.to.append(to)


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

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.report = Report(path, header.config)
        self.events = Columns()
        self.pages = Changes()
        """`to`: a code of `owners`."""
        self.window_pages = Changes()
        """`page` is of the window pool, `to` the page of the full pool that names it, 0: none."""
        self.owners = Names(OWNERS_FIRST)
        self.turns = Names()
        self.actions = Names()
        self.rules = Names()
        self.bad: dict[int, Finding] = {}
        """Index of an event in the columns -> what is wrong with it."""

    @property
    def first_bad(self) -> tuple[int, Finding] | None:
        return next(iter(self.bad.items()), None)


class ListeningWindows(WindowBook):
    """A map to the window pool that tells a story of each page that is named, or not named any more."""

    def __init__(self, pool_pages: int, told: StoryListener) -> None:
        super().__init__(pool_pages)
        self._told = told

    def commit(self, moves: WindowMoves) -> None:
        super().commit(moves)
        for window, page in moves.behind.items():
            self._told.window_page(window, page or 0)


class ListeningBook(PageBook):
    """A page book that tells a story of each page that changes hands."""

    def __init__(self, trace: Headed, d: Integers, told: StoryListener) -> None:
        config = trace.header.config
        super().__init__(config.pool_pages, d, config.window_pages)
        self.window = ListeningWindows(config.window_pages, told)
        self._told = told

    def listen(self) -> None:
        """From now on; what is held already is told as held before the first event."""
        self._told.is_listening = True
        for page, owner in self.owned():
            self._told.page(page, owner)
        for page, window in self.window.entries():
            self._told.window_page(window, page)

    def _own(self, page: int, owner: str) -> None:
        if self.owner(page) != owner:
            self._told.page(page, owner)
        super()._own(page, owner)


class StoryListener:
    """Hands what a book does on to a story, once it is listened to."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.is_listening = False
        self._event = -1

    def next_event(self) -> None:
        self._event = len(self._story.events.seq)

    def page(self, page: int, owner: str) -> None:
        if self.is_listening:
            self._story.pages.add(self._event, page, self._story.owners.code(owner))

    def window_page(self, window: int, page: int) -> None:
        if self.is_listening:
            self._story.window_pages.add(self._event, window, page)


class TellingReplayer(Replayer):
    """A replayer that tells a story of each event, once it listens."""

    book: ListeningBook

    def __init__(self, trace: Headed, known: Iterable[Fault], profile: Profile | None, story: Story) -> None:
        super().__init__(trace, known, profile)
        self._told = StoryListener(story)
        self.book = ListeningBook(trace, self.d, self._told)
        self.story = story

    def listen(self) -> None:
        self.book.listen()

    def feed(self, line: int, event: Event) -> Finding | None:
        if not self._told.is_listening:
            return super().feed(line, event)
        self._told.next_event()
        judged_before = self.report.actions.copy()
        finding = super().feed(line, event)
        self._tell(event, finding, next(iter(self.report.actions - judged_before), event.action))
        return finding

    def _tell(self, event: Event, finding: Finding | None, rule: str) -> None:
        story, columns = self.story, self.story.events
        if finding is not None:
            story.bad[len(columns.seq)] = finding
        about = self.ledger_of(event) or (TREE if event.action == "evict" else CHECKS)
        ledger = self.ledgers.get(about)
        lengths = Lengths.of(self.d, ledger)
        if finding is not None:
            lengths = lengths.seen_in(event)
        table = self.book.table(about)
        row = event.row if event.row is not None else table.row if table is not None else -1
        columns.seq.append(event.seq)
        columns.step.append(-1 if event.step is None else event.step)
        columns.action.append(story.actions.code(event.action))
        columns.rule.append(story.rules.code(rule))
        columns.who.append(story.owners.code(about))
        columns.turn.append(-1 if event.turn is None else story.turns.code(event.turn))
        columns.row.append(row)
        columns.phase.append(NONE if ledger is None else int(ledger.phase))
        columns.told_by.append((NO_ROW, FROM_TURN, FROM_SLOT).index(lengths.told_by))
        columns.c.append(lengths.c)
        columns.a.append(lengths.a)
        columns.r.append(lengths.r)
        columns.e.append(lengths.e)
        columns.taken.append(len(event.alloc))
        columns.freed.append(len(event.free))


def story_of(subject: Subject, *, since: int = 0, progress: Progress = lambda *_: None) -> Story:
    """Replay a trace and tell it from its event number `since` on. What is before is judged by whatever checker is faster."""
    reader = read_trace(subject.path)
    story = Story(subject.path, reader.header)

    def telling(trace: Headed, known: Iterable[Fault], profile: Profile | None) -> TellingReplayer:
        return TellingReplayer(trace, known, profile, story)

    replayer = replayer_of(reader, strict=subject.strict, profile=subject.profile, make=telling)
    assert isinstance(replayer, TellingReplayer)
    story.report = replayer.report
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
