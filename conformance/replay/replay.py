"""Replay: a trace against the specification, event by event, page by page.

How one event is judged is in `replayer.py`. The first difference ends the replay: what follows a broken state says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvproof.conformance.replay.begin import begin_with_state, replayer_of
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.left_open import left_open
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.unseen_overlap import FEW, steps_in_turn
from kvproof.conformance.replay.untold import not_expected, why_gaps_are_wrong, why_untold
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report
from kvproof.conformance.replay.wrong_evict import with_evicts_blamed
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import FINISHED, STOPPED, End, Event

__all__ = ["CONFORMS", "INCOMPLETE", "VIOLATES", "Finding", "Replayer", "Report", "replay", "replayer_of"]

MAY_LACK_EVENTS = "whether events were left out: the end record, of an older recorder, states no sha256"
NO_OVERLAP = "none of {steps} decode steps was prepared before the result of the one before it"
Progress = Callable[[int, float | None], None]
"""Is called with the number of events so far and the share of the file that they are, where that is known."""
Pause = Callable[[Callable[[], None]], None]
"""Is called between events, with what makes the replayer's state that of the last one."""
Checker = Callable[[Replayer, TraceReader, Callable[[int], None], "int | None", Pause], bool]
"""Judges a trace from the state that a replayer has, whose report it fills: event by event (`follow_interpreted`), or compiled
(`compiled/choose.py`). It tells how many events were judged, and stops behind the seq that is given, if one is: True if there
is more behind it."""


def follow_interpreted(
    replayer: Replayer, reader: TraceReader, progress: Callable[[int], None], until: int | None, pause: Pause
) -> bool:
    """Judge event by event, by the rules as they are."""
    report, place, first = replayer.report, reader.place, reader.first_seq
    for line, record in reader:
        if isinstance(record, End):
            break
        if isinstance(record, Event) and record.seq >= first + report.events:
            if until is not None and record.seq > until:
                reader.place = place
                return True
            finding = replayer.feed(line, record)
            progress(report.events)
            if finding is not None:
                report.findings.append(finding)
                if report.is_over:
                    break
            pause(lambda: None)
        place = reader.place
    return False


def replay(
    path: str | Path,
    *,
    strict: bool = False,
    profile: str | None = None,
    progress: Progress = lambda *_: None,
    checker: Checker = follow_interpreted,
    until: int | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
) -> Report:
    """Replay one trace. `strict`: deviations that are known of the release are violations too.

    `profile`: the release whose rules it is judged by, "auto" for the one that the header names; None: the model's own rules.

    `checker`: who judges; all say the same. `until`: the seq of the last event to judge. `checkpoints`: where the state is
    written at times and at the end; `resume`: and read at first.
    """
    reader = read_trace(path)
    replayer = replayer_of(reader, strict=strict, profile=profile)
    report = replayer.report
    if reader.slice is not None and not reader.slice.can_be_replayed:
        report.why = f"{path}: {reader.slice.why_not_replayed}"
        return report
    begin_with_state(replayer, reader, resumes=resume)
    if checkpoints is None:
        return follow(reader, replayer, progress, checker, until)
    if resume:
        checkpoints.resume(replayer, reader, strict)
    with checkpoints.heeding_ctrl_c():
        pause = partial(checkpoints.write_if_due, replayer, reader, strict)
        follow(reader, replayer, progress, checker, until, pause)
        checkpoints.write(replayer, reader, strict)
    return report


def follow(
    reader: TraceReader,
    replayer: Replayer,
    progress: Progress,
    checker: Checker,
    until: int | None,
    pause: Pause = lambda _: None,
) -> Report:
    """Judge what there is to judge, and say how it ended."""
    report, size = replayer.report, max(1, reader.path.stat().st_size)

    def told(events: int) -> None:
        progress(events, reader.position / size if reader.position else None)

    is_cut = not report.is_over and checker(replayer, reader, told, until, pause)
    report.findings = with_evicts_blamed(report.findings, reader.path)
    if is_cut and not report.findings:
        report.why = f"{reader.path}: judged up to event {until}, as asked; the verdict of the whole is open"
        return report
    return conclude(replayer, reader)


def conclude(replayer: Replayer, reader: TraceReader) -> Report:
    """The verdict over a trace that was followed as far as it goes. The replayer has the state of its last event."""
    report, end = replayer.report, reader.end
    report.passes = replayer.passes.count
    if report.findings:
        report.verdict = VIOLATES
    elif reader.broken_off is not None:
        report.why = reader.broken_off
    elif end is None:
        report.why = f"{report.path}: no terminal record: the recorder did not finish"
    elif end.dropped:
        report.why = f"{report.path}: the recorder dropped {end.dropped} events"
    elif end.reason not in (FINISHED, STOPPED):
        report.why = f"{report.path}: the run ended early: {end.reason}"
    elif (left := left_open(replayer)) and end.reason == FINISHED:
        report.why = f"{report.path}: the end record says {FINISHED!r}, and {left}"
    elif left and replayer.passes.idle_at == report.events:
        report.why = f"{report.path}: the scheduler finds nothing to run, and {left}"
    elif wrong := why_gaps_are_wrong(report.coverage, reader.header) or why_untold(report.coverage, reader.header):
        report.why = f"{report.path}: {wrong}"
    elif (steps := steps_in_turn(report.coverage, replayer.oracle.actions) if replayer.d.overlap else 0) > FEW:
        report.why = f"{report.path}: the header says overlap, and {NO_OVERLAP.format(steps=steps)}"
    else:
        report.verdict = CONFORMS
        if steps:
            report.gaps += (f"overlap, which the header says: {NO_OVERLAP.format(steps=steps)}",)
        if left:
            report.gaps += (f"what happens afterwards: the server was stopped while {left}",)
        if end.sha256 is None and MAY_LACK_EVENTS not in report.gaps:
            report.gaps += (MAY_LACK_EVENTS,)
        report.gaps += not_expected(reader.header)
    return report
