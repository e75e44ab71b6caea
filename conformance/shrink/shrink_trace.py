"""Shrinks a trace that violates a rule to a few events that violate it in the same way.

What is the same: the first finding is of the same action, breaks the same invariants, and is explained by the same faults. To
leave events out makes a trace inconsistent, so each smaller one is judged anew and kept only if its first finding is the same.

1. Cut: the lives that the finding rests on (`first_cut.py`), nothing else and nothing behind it.
2. Left out: whole lives, then whole turns, then single events.
3. Retold: if a fault of the catalogue explains it, the model tells the steps of that one life anew, with the fault in the last
   (`model_run.py`). Then steps can be left out and lengths made small that the recorded pages would not allow.

Names, pages and rows are numbered anew; of what the header says beside its configuration nothing stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.judge import check_terms
from kvproof.conformance.replay.memory_check import is_about_holders, recounted
from kvproof.conformance.replay.replay import INCOMPLETE, VIOLATES, replay
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer, Unwritten
from kvproof.conformance.replay.rules_of_trace import judged_by
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.shrink.delta import Limit, least, without_stretches
from kvproof.conformance.shrink.first_cut import Lives, kept
from kvproof.conformance.shrink.model_run import Retold, retelling_of
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.spec.trace import Event, Header

Events = list[Event]
OnRecords = Callable[[str, int, "float | None"], None]
"""Is called with what is done now, how many records there are left, and the share of it, or of the time, that is over."""


class Same(NamedTuple):
    """What two findings have in common that are the same."""

    event: str
    rule: str
    invariants: tuple[str, ...]
    faults: tuple[str, ...]

    @staticmethod
    def of(finding: Finding) -> Same:
        faults = tuple(fault.id for fault in finding.explained_by)
        return Same(finding.event.action, finding.action, tuple(sorted(finding.invariants)), faults)


@dataclass
class Shrunk:
    """The smallest that was found. `is_smallest`: nothing more could be left out before the time was up."""

    header: Header
    events: Events
    finding: Finding
    records: int
    """Events up to the finding, in the trace as it was."""
    lives: int
    """Sessions and ordinary requests among them."""
    is_smallest: bool = True

    @property
    def lives_left(self) -> int:
        told = Lives()
        return len({told.tell(event) for event in self.events} - {None})

    def save(self, path: Path) -> None:
        """Deterministic: the same trace is shrunk to the same bytes, unless the time was up."""
        with write_trace(path, self.header) as writer:
            for event in self.events:
                writer.write(event)
            writer.close("shrunk")


class TraceShrinker:
    """One trace and its first finding. `best` is the smallest so far, also when it is interrupted."""

    def __init__(self, path: Path, profile: str | None, seconds: float, told: OnRecords = lambda *_: None) -> None:
        self._path, self._on_records = path, told
        reader = read_trace(path)
        if reader.slice is not None and not reader.slice.starts_from_nothing:
            raise UserError(f"{path}: {reader.slice.why_not_replayed}: shrink the whole trace")
        report = replay(path, profile=profile, progress=partial(told, "looking for the first finding"))
        if report.first is None:
            why = f" ({report.why})" if report.verdict == INCOMPLETE else ""
            raise NothingToShrink(f"{path}: {report.verdict}{why}: there is nothing to shrink", report.verdict)
        assert report.verdict == VIOLATES
        self._limit = Limit(seconds)
        self._first = report.first
        self._same = Same.of(self._first)
        self._rules = judged_by(reader.header, path, profile, strict=False)
        self._header = reader.header.model_copy(update={"scenario": None, "extra": {}})
        self.best: Shrunk | None = None
        self._records = 0, 0
        self._candidate: list[_Of] = []
        self._stays: set[int | None] = set()
        """Lives of which nothing is left out."""

    def run(self) -> Shrunk:
        """Raises UserError where no part of the trace shows the finding by itself."""
        self._cut()
        events: Events = []
        while self.best is not None and self.best.events != events and not self._limit.is_over:
            events = self.best.events
            self._leave_out()
            self._retell()
            self._begin_again()  # what was written anew may be left out by other stretches
        assert self.best is not None
        self.best.is_smallest = not self._limit.is_over
        return self.best

    def _told(self, what: str, records: int) -> None:
        self._on_records(what, records, self._limit.share)

    # -- what is the same --

    def _numbered(self, events: Sequence[Event]) -> Events:
        """Numbered from 0; a memory check at the end reads what it would read there, wrong by as much as it was."""
        numbers = {event.seq: seq for seq, event in enumerate(events)}
        numbered = [
            event.model_copy(update={"seq": seq, "cause": None if event.cause is None else numbers.get(event.cause)})
            for seq, event in enumerate(events)
        ]
        if numbered and numbered[-1].action == "check":
            numbered[-1] = self._recounted(numbered)
        return numbered

    def _recounted(self, events: Events) -> Event:
        replayer = self._replayer(self._header)
        try:
            if _first_finding(replayer, events[:-1]) is not None:
                return events[-1]
        except UserError:
            return events[-1]
        true = check_terms(replayer.oracle, replayer.ledgers, frozenset())
        return recounted(events[-1], self._first.differences, replayer.book, true)

    def _shows_it(self, events: Sequence[Event]) -> bool:
        """Whether the first finding of a candidate is the same, and its last event; then it is the best so far."""
        if not events:
            return False
        return self._is_taken(self._header, self._numbered(events))

    def _is_taken(self, header: Header, events: Events) -> bool:
        """Judge a candidate by the rules that the whole trace is judged by."""
        try:
            finding = _first_finding(self._replayer(header), events)
        except UserError:  # no trace that could be judged
            return False
        if finding is None or Same.of(finding) != self._same or finding.event.seq != events[-1].seq:
            return False
        self.best = Shrunk(header, events, finding, *self._records)
        return True

    def _replayer(self, header: Header) -> Replayer:
        return Replayer(Unwritten(self._path, header), self._rules.known, self._rules.profile)

    # -- 1. cut --

    def _events(self) -> Iterator[Event]:
        last = self._first.event.seq
        return islice(read_trace(self._path).events_from(0), last + 1)

    def _cut(self) -> None:
        lives, concerned, about = Lives(), set[int](), None
        since_check = set[int | None]()
        seq = self._first.event.seq
        for event in self._events():
            if event.seq % 1000 == 0:
                self._told("cutting", event.seq)
            if event.seq == seq:
                concerned = lives.concerned_by(event)
            about = lives.tell(event)
            if event.action != "check":
                since_check.add(about)
            elif event.seq != seq:
                since_check.clear()
        # A check that is wrong about more than holders does not say who put a counter wrong: it happened since the last one.
        of_holders = all(map(is_about_holders, self._first.differences))
        self._stays = since_check if self._first.event.action == "check" and not of_holders else set()
        self._records = (seq + 1, len(lives.last_seq))
        if about is None:
            concerned |= lives.open
        recent = sorted(range(len(lives.last_seq)), key=lambda life: -lives.last_seq[life])
        wanted = concerned if about is None else concerned | {about}
        more = 0
        while True:
            chosen = lives.with_what_they_rest_on(wanted | set(recent[:more]))
            self._candidate = list(kept(self._events(), chosen))
            if about is None and self._first.event.action == "check":
                self._candidate.append((None, self._first.event))
            if self._shows_it([event for _, event in self._candidate]):
                return
            if more >= len(recent):
                raise UserError(
                    f"{self._path}: without its memory checks the trace does not show what was found at event {seq}: "
                    f"kvproof slice --with-state --from {max(0, seq - 100)} cuts it"
                )
            more = 2 * more or 4

    def _begin_again(self) -> None:
        """The smallest so far in place of what was cut."""
        assert self.best is not None
        lives = Lives()
        self._first, self._header = self.best.finding, self.best.header
        self._candidate = [(lives.tell(event), event) for event in self.best.events]
        if self._stays:
            self._stays = {life for life, _ in self._candidate}

    # -- 2. left out --

    def _leave_out(self) -> None:
        """Whole lives, whole turns, single events: each time without the last event, which has the finding."""
        best = self._candidate
        for group_of in (_life_of, _turn_of, _itself):
            best = self._without_groups(best, group_of)
        names = renamed([event for _, event in best])
        if not self._shows_it(names):
            self._shows_it([event for _, event in best])

    def _without_groups(self, best: list[_Of], group_of: Callable[[_Of], object]) -> list[_Of]:
        def of(groups: Sequence[object]) -> list[_Of]:
            chosen = set(groups)
            return [item for item in best[:-1] if item[0] in self._stays or group_of(item) in chosen] + best[-1:]

        def is_kept(groups: Sequence[object]) -> bool:
            self._told("leaving out", len(self.best.events) if self.best else 0)
            return self._shows_it([event for _, event in of(groups)])

        groups: Sequence[object] = list(
            dict.fromkeys(group_of(item) for item in best[:-1] if item[0] not in self._stays)
        )
        return of(least(groups, without_stretches, is_kept, self._limit))

    # -- 3. retold --

    def _retell(self) -> None:
        assert self.best is not None
        first = retelling_of(self.best.events, self.best.finding, self._replayer(self._header))
        if first is None:
            return
        before = len(self.best.events)

        def is_kept(story: Retold) -> bool:
            assert self.best is not None
            self._told("running it on the model", len(self.best.events))
            witness = story.witness()
            if witness is None:
                return False
            header = self._header.model_copy(update={"config": witness.config})
            return self._is_taken(header, list(witness.events))

        captured = self.best
        if not is_kept(first):
            self.best = captured
            return
        story = first
        while True:
            simpler = least(story, Retold.simpler, is_kept, self._limit)
            if simpler == story or self._limit.is_over:
                break
            story = simpler
        if len(self.best.events) > before:
            self.best = captured


class NothingToShrink(UserError):
    """The trace has no finding."""

    def __init__(self, message: str, verdict: str) -> None:
        super().__init__(message)
        self.verdict = verdict


def _first_finding(replayer: Replayer, events: Sequence[Event]) -> Finding | None:
    return next((f for e in events if (f := replayer.feed(FIRST_LINE + e.seq, e)) is not None), None)


_Of = tuple["int | None", Event]
"""A life and one of its events."""


def _life_of(item: _Of) -> object:
    return item[0] if item[0] is not None else ("evict", item[1].seq)


def _turn_of(item: _Of) -> object:
    return item[0], item[1].turn if item[1].turn is not None else item[1].seq


def _itself(item: _Of) -> object:
    return item[1].seq


def renamed(events: Sequence[Event]) -> list[Event]:
    """The events with new names, pages and rows, in the order in which the trace first says them: nothing of who sent it is left.

    Page 0 stays: it is the padding page. Lists of free pages are left out.
    """
    # Each name gets the next number.
    sessions, turns, rows, pages, windows = (defaultdict[object, int](count(n).__next__) for n in (0, 0, 0, 1, 1))
    told = []
    for event in events:
        new: dict[str, object] = {
            "session": None if event.session is None else f"s{sessions[event.session]}",
            "turn": None if event.turn is None else f"r{turns[event.turn]}",
            "row": None if event.row is None else rows[event.row],
            "free_list": None,
            "window_free_list": None,
        }
        for names, numbers in ((("alloc", "free", "shared"), pages), (("window_alloc", "window_free"), windows)):
            for name in names:
                said = getattr(event, name)
                new[name] = said and tuple(page and numbers[page] for page in said)
        told.append(event.model_copy(update=new))
    return told
