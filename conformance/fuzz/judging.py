"""Judges the events of a schedule while it is played: each at once, or, many times as fast, in blocks by the compiled checker.

Both come to the same: what is found is the first event that the model does not allow, and what is behind it is not looked at.
By blocks the target runs for some more events before it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import ValidationError

from kvproof.conformance.compiled.build import Judge
from kvproof.conformance.compiled.choose import AUTO, INTERPRETED, is_installed
from kvproof.conformance.fuzz.abstract_states import abstract_states
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer, Unwritten
from kvproof.conformance.replay.rules_of_trace import judged_by, rules_of
from kvproof.conformance.replay.standstill import cause_of, standstill
from kvproof.conformance.replay.verdict import Finding
from kvproof.conformance.traces.columnar_events import EventColumns
from kvproof.conformance.traces.event_fields import fitting
from kvproof.spec.trace import Event, Header

IN_MEMORY = Path("fuzz.jsonl")
PAYS_FROM = 20.0
"""Seconds of a campaign from which the compiled checker pays: to load it takes some, more the first time."""
BLOCK = 1024
"""Events that are judged at once, at most: to start a block takes as long as to judge tens of events."""


class Judging:
    """Feeds the model with each event as it happens. `profile`: whose rules, as in `kvproof replay`."""

    def __init__(self, header: Header, profile: str | None = None) -> None:
        by = judged_by(header, IN_MEMORY, profile, strict=False)
        self.finding: Finding | None = None
        self._replayer = Replayer(Unwritten(IN_MEMORY, header), by.known, by.profile)
        self._seen: list[Any] = []

    def see(self, seen: Any) -> None:
        """An event, as an object with the fields of docs/events.md. What comes behind the first finding says nothing."""
        if self.finding is None:
            seq = len(self._seen)
            self._seen.append(seen)
            self.finding = self._replayer.feed(FIRST_LINE + seq, _event(seq, seen))

    def settle(self) -> None:
        """Judge all that was seen."""

    def standstill(self, unfinished: Sequence[str]) -> list[str]:
        """What these requests wait for. Ask when all is settled."""
        return standstill(self._replayer.liveness, self._replayer.open_turns(), unfinished)

    def cause_of_standstill(self) -> str:
        """Why nothing continues, the same for what is the same."""
        is_marked = self._marked_full_last()
        return cause_of(self._replayer.liveness, self._replayer.open_turns(), is_marked_full=is_marked)

    def _marked_full_last(self) -> bool:
        """What the last event of a scheduler that found nothing to run said of its batch."""
        checks = (getattr(event, "params", {}) for event in reversed(self._seen) if event.action == "check")
        idle = (params for params in checks if "idle_passes" in params)
        return bool(next(idle, {}).get("marked_full"))

    @property
    def events(self) -> list[Event]:
        """Up to the finding, or to what is no event at all."""
        events = []
        with suppress(ValidationError):
            for seq, seen in enumerate(self._seen):
                events.append(_event(seq, seen))
        return events

    @property
    def states(self) -> frozenset[str]:
        """The abstract states behind all events that were seen, by name."""
        return abstract_states(self._seen)

    @property
    def seen(self) -> int:
        """How many events."""
        return len(self._seen)

    @property
    def told(self) -> Sequence[Any]:
        """The events as the target told them."""
        return self._seen

    @property
    def coverage(self) -> Coverage:
        return self._replayer.report.coverage

    @property
    def followed(self) -> tuple[str, ...]:
        """Known deviations of the target that were met on the way, and followed."""
        return tuple(self._replayer.report.followed)


class JudgingByBlocks(Judging):
    """Collects events in the columns of a trace and judges a block at once."""

    def __init__(self, header: Header, judge: Judge, profile: str | None = None) -> None:
        from kvproof.conformance.compiled.checker import CompiledChecker

        super().__init__(header, profile)
        self._checker = CompiledChecker(self._replayer, judge)
        self._next = 0

    def see(self, seen: Any) -> None:
        if self.finding is None:
            self._seen.append(seen)
            if len(self._seen) - self._next >= BLOCK:
                self._judge()

    def settle(self) -> None:
        self._judge()
        if self.finding is None:
            self._checker.finish()

    def standstill(self, unfinished: Sequence[str]) -> list[str]:
        self._checker.bring_up_to_date()
        return super().standstill(unfinished)

    def _judge(self) -> None:
        first, self._next = self._next, len(self._seen)
        if self.finding is not None or first == self._next:
            return
        columns, wrong = EventColumns(), None
        try:
            for seq, seen in enumerate(self._seen[first:], first):
                fields = fitting(seq, vars(seen))
                if fields is not None:
                    columns.add_fields(fields)
                else:
                    columns.add(_event(seq, seen))
        except ValidationError as error:
            wrong = error
        if len(columns):
            self._checker.judge_batch(columns)
        report = self._replayer.report
        if report.findings:
            self.finding = report.findings[0]
            del self._seen[self.finding.event.seq + 1 :]
        elif wrong is not None:
            raise wrong


class Unjudged(Judging):
    """The model is not asked."""

    def __init__(self, header: Header, profile: str | None = None) -> None:
        self.finding = None
        self._seen = []

    def see(self, seen: Any) -> None:
        pass

    def standstill(self, unfinished: Sequence[str]) -> list[str]:
        return []

    def cause_of_standstill(self) -> str:
        return "nobody judges"

    @property
    def coverage(self) -> Coverage:
        return Coverage()

    @property
    def followed(self) -> tuple[str, ...]:
        return ()


class NewJudging(Protocol):
    def __call__(self, header: Header, profile: str | None = None) -> Judging: ...


def judging_by(checker: str, seconds: float, waits: Callable[[str], None] = lambda _: None) -> NewJudging:
    """What judges a campaign of so many seconds; `checker` as in `replay`. Raises UserError if it is not installed.

    The checker is compiled once on a machine, in some seconds, which are minutes where others use the cores: `waits` is called
    then. The rules of a profile are compiled when it is first met: about a second, and only once, too.
    """
    if checker == INTERPRETED or (checker == AUTO and seconds < PAYS_FROM):
        return Judging
    if not is_installed(checker):
        return Judging
    from kvproof.conformance.compiled.build import compiled_loop
    from kvproof.conformance.compiled.warm import warmed

    compiled_loop(waits)
    judge_of = cache(lambda name: warmed(rules_of(name)))
    judge_of(None)

    def new(header: Header, profile: str | None = None) -> Judging:
        chosen = judged_by(header, IN_MEMORY, profile, strict=False).profile
        name = chosen.name if chosen is not None and chosen.rules else None
        return JudgingByBlocks(header, judge_of(name), profile)

    return new


def _event(seq: int, seen: Any) -> Event:
    return Event(seq=seq, **vars(seen))
