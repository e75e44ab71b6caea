"""Follows a trace that is being written, and judges each record as it comes. The page is docs/watch.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kvproof.conformance.compiled.choose import AUTO
from kvproof.conformance.replay.finding_words import finding_json
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report
from kvproof.conformance.watch.growing_judge import LiveJudge
from kvproof.conformance.watch.growing_trace import GrowingFile, Source, source_of
from kvproof.conformance.watch.status import ENDED, FOLLOWING, IDLE, UNJUDGED, WAITING, Pace, Status, now
from kvproof.spec.trace import End

POLL_SECONDS = 0.05
STATUS_SECONDS = 0.25


class Show(Protocol):
    """Where a watch tells what it sees."""

    def say(self, text: str) -> None: ...

    def finding(self, finding: Finding, times: int) -> None: ...

    def status(self, status: Status) -> None: ...


@dataclass(frozen=True)
class Options:
    """`once`: judge what is there and stop. `until_end`: believe the first end. `keep_going`: count on after a violation."""

    strict: bool = False
    checker: str = AUTO
    once: bool = False
    until_end: bool = False
    keep_going: bool = False
    profile: str | None = None


@dataclass
class Outcome:
    """How a watch ended. `report`: of the trace that was followed last; None: there never was one."""

    report: Report | None
    violations: int
    events: int
    unjudged: int
    restarts: int
    interrupted: bool = False

    @property
    def verdict(self) -> str:
        if self.violations:
            return VIOLATES
        return INCOMPLETE if self.report is None else self.report.verdict


class Watch:
    """One run of `kvproof watch`. `ring`: called with each finding as JSON, for the alarm."""

    def __init__(
        self, path: Path, options: Options, show: Show, ring: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> None:
        self.path, self.options = path, options
        self._show, self._ring = show, ring
        self._file: GrowingFile | None = None
        self._source: Source | None = None
        self._judge: LiveJudge | None = None
        self._earlier = 0
        """Violations of traces that stood here before."""
        self._restarts = 0
        self._begun = now()
        self._pace = Pace(self._begun)
        self._next_status = 0.0
        self._said_waiting = ""
        self.latest = Status(str(path))

    def run(self) -> Outcome:
        interrupted = False
        try:
            while self._open() and not self._follow():
                self._restarts += 1
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if self._judge is not None:
                self._judge.stop()
        return self._outcome(interrupted)

    def _outcome(self, interrupted: bool) -> Outcome:
        judge = self._judge
        report = judge.conclude() if judge is not None else None
        self._show_status(ENDED)
        if judge is None:
            return Outcome(None, self._earlier, 0, 0, self._restarts, interrupted)
        violations = self._earlier + judge.violations
        return Outcome(report, violations, judge.events, judge.unjudged, self._restarts, interrupted)

    # --- waiting for a trace ----------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Wait until there is a trace with a header. False: there is none, and nobody is to be waited for."""
        self._source = None
        while True:
            if self._file is None and self.path.exists():
                self._file = GrowingFile(self.path)
            if self._file is not None:
                self._source = source_of(self._file)
                if self._source is not None:
                    break
            if self.options.once:
                return False
            self._say_waiting("the file has no header yet" if self._file is not None else "there is no such file yet")
            if self._file is not None and (self._file.is_elsewhere() or self._file.was_rewritten()):
                self._close()
            self._tick()
            time.sleep(POLL_SECONDS)
        if self._judge is not None:
            self._judge.stop()
            self._earlier += self._judge.violations
        self._pace = Pace(now())
        chosen = self.options
        self._judge = LiveJudge(
            self._source, strict=chosen.strict, checker=chosen.checker, note=self._show.say, profile=chosen.profile
        )
        report = self._judge.report
        if report.profile is not None:
            self._show.say(f"judged by the rules of {report.profile}")
        if report.hint:
            self._show.say(report.hint)
        return True

    def _say_waiting(self, why: str) -> None:
        if why != self._said_waiting:
            self._show.say(f"waiting for {self.path}: {why}")
            self._said_waiting = why

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._said_waiting = ""

    # --- following it -----------------------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Follow the trace. True: this is the end of the watch; False: another trace stands in its place."""
        file, source, judge = self._file, self._source, self._judge
        assert file is not None and source is not None and judge is not None
        if judge.why_not:
            return True
        self._show.say(f"following {self.path}")
        said_gone = False
        while True:
            if file.was_rewritten():
                self._begin_anew("was truncated, or written anew")
                return False
            news = False
            for part in source.new(judge.wants_columns):
                news = True
                if isinstance(part, End):
                    break
                for finding in judge.take(part):
                    self._announce(finding)
                    if judge.ended_by is not None and not self.options.keep_going:
                        return True
                if source.unread() > source.behind_from:
                    judge.is_behind()
                self._tick()
            if source.end is not None and self._is_final(source):
                list(source.new(False))  # raises if something stands behind it
                return True
            if news:
                continue
            if self.options.once and not source.unread():
                return True
            if file.is_elsewhere() and not source.unread():
                if self.path.exists():
                    self._begin_anew("was replaced by another file")
                    return False
                if not said_gone:
                    self._show.say(f"{self.path} was removed; whoever has it open may still write on")
                    said_gone = True
            self._tick()
            time.sleep(POLL_SECONDS)

    def _is_final(self, source: Source) -> bool:
        """A server's recorder ends its trace whenever the server is idle, and takes the end back when that is over."""
        end, header = source.end, source.header
        assert end is not None
        of_a_server = header.producer.target.startswith("sglang") and header.scenario is None
        return self.options.once or self.options.until_end or not of_a_server or end.reason != "finished"

    def _begin_anew(self, what: str) -> None:
        assert self._judge is not None
        report = self._judge.conclude()
        self._show.say(f"{self.path} {what}; it had {self._judge.events} events: {report.verdict}. Beginning anew")
        self._close()

    def _announce(self, finding: Finding) -> None:
        assert self._judge is not None
        self._show.finding(finding, self._judge.how_often(finding))
        self._ring({"trace": str(finding.path), **finding_json(finding)})
        self._tick(at_once=True)

    # --- telling ----------------------------------------------------------------------------------------------------------

    def _tick(self, at_once: bool = False) -> None:
        moment = now()
        if self._source is not None and self._file is not None and self._judge is not None:
            size = self._file.size()
            self._pace.saw(moment, size, size - self._source.unread(), self._judge.events)
        if at_once or moment >= self._next_status:
            self._next_status = moment + STATUS_SECONDS
            self._show_status()

    def _show_status(self, phase: str | None = None) -> None:
        self.latest = self._status(phase)
        self._show.status(self.latest)

    def _status(self, phase: str | None) -> Status:
        source, judge, moment = self._source, self._judge, now()
        if source is None or judge is None:
            return Status(str(self.path), phase or WAITING, violations=self._earlier, restarts=self._restarts)
        violations = self._earlier + judge.violations
        first, so_far = judge.report.first, CONFORMS if judge.events else ""
        return Status(
            str(self.path),
            phase=phase or self._phase(source, judge),
            verdict=VIOLATES if violations else judge.report.verdict if phase == ENDED else so_far,
            header=source.header,
            events=judge.events,
            unjudged=judge.unjudged,
            violations=violations,
            first_violation="" if first is None else f"event {first.event.seq}: {first.action} ({first.ledger})",
            rate=self._pace.rate(),
            lag_bytes=source.unread(),
            lag_seconds=self._pace.lag_seconds(moment),
            held=source.held,
            pools=judge.pools(),
            load=judge.load(),
            actions=judge.actions(),
            followed=judge.report.followed,
            compiled=judge.is_compiled,
            restarts=self._restarts,
            ends_taken_back=source.ends_taken_back,
            seconds=moment - self._begun,
        )

    def _phase(self, source: Source, judge: LiveJudge) -> str:
        if judge.ended_by is not None:
            return UNJUDGED
        return FOLLOWING if source.end is None else IDLE
