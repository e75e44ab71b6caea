"""Judges a trace as it grows: interpreted at first, compiled once the writer is too fast for that.

The compiled checker starts slowly, some seconds the first time. So another process compiles it meanwhile; then it takes over
the state. What it does not find clean it hands to the interpreted checker, whose verdict and words it then is.

A violation that moved pages, or broke the order of things, ends the following: the model's state is no longer the server's. What
comes after is counted only: events, and the pages that the trace's own moves take and give back.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from kvproof.conformance.compiled.choose import COMPILED, INTERPRETED, can_be_compiled, is_installed
from kvproof.conformance.replay.begin import begin_with_state, replayer_of
from kvproof.conformance.replay.owner_counts import (
    Load,
    MovedPages,
    Pools,
    load_of_book,
    pools_of_book,
)
from kvproof.conformance.replay.replay import conclude
from kvproof.conformance.replay.verdict import Finding, Report
from kvproof.conformance.traces.columnar_events import batches_of
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.watch.growing_trace import Events, Source
from kvproof.spec.trace import Event

if TYPE_CHECKING:
    from kvproof.conformance.compiled.checker import CompiledChecker
    from kvproof.conformance.compiled.state import State

Note = Callable[[str], None]
WARM = [sys.executable, "-m", "kvproof.conformance.compiled.warm"]


class Preparation:
    """The process that compiles the rules of a profile, or the model's."""

    def __init__(self, profile: str | None) -> None:
        self._command = [*WARM, *([] if profile is None else [profile])]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


class LiveJudge:
    """The replay of one trace that grows."""

    def __init__(self, source: Source, *, strict: bool, checker: str, note: Note, profile: str | None = None) -> None:
        self.source = source
        self.replayer = replayer_of(cast(TraceReader, source), strict=strict, profile=profile)
        self.report: Report = self.replayer.report
        self.ended_by: Finding | None = None
        """The violation that ended the following."""
        self.unjudged = 0
        """Events since then."""
        slice = self.source.slice
        self.why_not = "" if slice is None or slice.can_be_replayed else f"{self.report.path}: {slice.why_not_replayed}"
        """Why the trace cannot be followed: a replay starts from nothing, or from a state that a slice carries."""
        begin_with_state(self.replayer, cast(TraceReader, source))
        self._kinds: Counter[Kind] = Counter()
        self._note = note
        self._moved: MovedPages | None = None
        self._compiled: CompiledChecker | None = None
        self._preparation = Preparation(self.report.profile)
        self._may_compile = checker != INTERPRETED and is_installed(checker) and can_be_compiled(self.replayer, checker)
        if checker == COMPILED:
            self._note("the compiled checker is loaded; where it is not kept yet, that takes some seconds")
            self._take_over()

    @property
    def is_compiled(self) -> bool:
        return self._compiled is not None

    @property
    def wants_columns(self) -> bool:
        return self._compiled is not None and self.ended_by is None

    def is_behind(self) -> None:
        """More waits than is read at once: the compiled checker is prepared, or takes over if it is ready."""
        if not self._may_compile or self.is_compiled or self.ended_by is not None:
            return
        self._preparation.start()
        code = self._preparation.exit_code
        if code == 0:
            self._take_over()
        elif code is not None:
            self._may_compile = False
            self._note(f"the compiled checker could not be made (exit code {code}): the interpreted one continues")

    def _take_over(self) -> None:
        from kvproof.conformance.compiled.checker import CompiledChecker
        from kvproof.conformance.compiled.warm import warmed

        self._compiled = CompiledChecker.taking_over(
            self.replayer, warmed(self.replayer.oracle.actions), self.source.line
        )

    def take(self, part: Events) -> Iterator[Finding]:
        """Judge what is new. A finding that ends the following is the last one, of this part and of all."""
        if self.ended_by is not None:
            self._only_count(part.objects())
        elif self._compiled is not None:
            for batch in batches_of(part.events) if isinstance(part.events, list) else (part.events,):
                self._compiled.judge_batch(batch)
            yield from self._found(part)
        else:
            for at, event in enumerate(part.events):
                finding = self.replayer.feed(part.line + at, event)
                if finding is not None:
                    self.report.findings.append(finding)
                    yield from self._found(part)
                if self.ended_by is not None:
                    return

    def _found(self, part: Events) -> Iterator[Finding]:
        """What was found in a part. The report keeps the first of each kind: a wrong check may be found for days."""
        known = len(self._kinds)
        found, self.report.findings = self.report.findings[known:], self.report.findings[:known]
        for finding in found:
            if kind_of(finding) not in self._kinds:
                self.report.findings.append(finding)
            self._kinds[kind_of(finding)] += 1
            if finding.action != "check":
                self.ended_by = finding
            yield finding
            if finding is self.ended_by:  # whoever stops here asks for nothing more
                self._only_count(part.objects(finding.line + 1 - part.line))

    def _only_count(self, events: list[Event]) -> None:
        if self._moved is None:
            self._moved = MovedPages(self._pools())
        self._moved.count(events)
        self.unjudged += len(events)

    def conclude(self) -> Report:
        """The verdict over what is there."""
        if self._compiled is not None:
            self._compiled.bring_up_to_date()
        report = conclude(self.replayer, cast(TraceReader, self.source))
        report.why = self.why_not or report.why
        return report

    def stop(self) -> None:
        self._preparation.stop()

    @property
    def violations(self) -> int:
        return self._kinds.total()

    def how_often(self, finding: Finding) -> int:
        """Findings of the same kind so far."""
        return self._kinds[kind_of(finding)]

    @property
    def events(self) -> int:
        """Events so far, judged or not."""
        judged = self._compiled.judged if self._compiled is not None else self.report.events
        return judged + self.unjudged

    def pools(self) -> Pools:
        return self._pools() if self._moved is None else self._moved.pools()

    def load(self) -> Load:
        state = self._state()
        return load_of_book(self.replayer) if state is None else state.load()

    def actions(self) -> Counter[str]:
        """How often each rule was followed."""
        self._write_report()
        return self.report.actions

    def _pools(self) -> Pools:
        state = self._state()
        return pools_of_book(self.replayer) if state is None else state.pools()

    def _state(self) -> State | None:
        return None if self._compiled is None else self._compiled.state

    def _write_report(self) -> None:
        if self._compiled is not None:
            self._compiled.finish()


Kind = tuple[str, tuple[str, ...]]


def kind_of(finding: Finding) -> Kind:
    """The rule, and the faults that explain it."""
    return finding.action, tuple(fault.id for fault in finding.explained_by)
