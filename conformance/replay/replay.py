"""Replay: a trace against the specification, event by event, page by page.

How one event is judged is in `replayer.py`. The first difference ends the replay: what follows a broken state says nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.replay.rules_of_trace import judged_by
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report
from kvproof.conformance.traces.trace_io import TraceReader, is_columnar, read_trace
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import End, Event

if TYPE_CHECKING:
    from kvproof.conformance.replay.checkpoint import Checkpoints

__all__ = ["CONFORMS", "INCOMPLETE", "VIOLATES", "Finding", "Replayer", "Report", "is_large", "replay"]

Progress = Callable[[int, float | None], None]
"""Is told the events so far and the share of the file that they are, where that is known."""
Pause = Callable[[Callable[[], None]], None]
"""Is called between events, with what makes the replayer's state that of the last one."""
Follow = Callable[["TraceReader", Callable[[int], None], "int | None", Pause], bool]
AUTO, COMPILED, INTERPRETED = CHECKERS = ("auto", "compiled", "interpreted")
LARGE = 2**25
"""Bytes of lines from which the compiled checker pays for its start, which is up to a minute the first time."""
LARGE_IN_COLUMNS = 2**21
"""The same of a trace in columns, or of one that is packed: an event takes a sixteenth there."""


def replay(
    path: str | Path,
    *,
    strict: bool = False,
    profile: str | None = None,
    progress: Progress = lambda *_: None,
    checker: str = AUTO,
    until: int | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
) -> Report:
    """Replay one trace. `strict`: deviations that are known of the release are violations too.

    `profile`: the release whose rules it is judged by, "auto" for the one that the header names; None: the model's own rules.

    `checker`: who judges. The compiled one is these rules too, traced and compiled (`conformance/compiled/`); what it does not
    find clean the interpreted one judges. `auto`: compiled, if that is installed and the trace is large. `until`: the seq of the
    last event to judge. `checkpoints`: where the state is written at times and at the end; `resume`: and read at first.
    """
    reader = read_trace(path)
    replayer = replayer_of(reader, strict=strict, profile=profile)
    report = replayer.report
    if reader.slice is not None and not reader.slice.can_be_replayed:
        report.why = f"{path}: {reader.slice.why_not_replayed}"
        return report
    from kvproof.conformance.replay.slice_state import begin_with_state

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
    checker: str,
    until: int | None,
    pause: Pause = lambda _: None,
) -> Report:
    """Judge what there is to judge, and say how it ended."""
    report, size = replayer.report, max(1, reader.path.stat().st_size)

    def told(events: int) -> None:
        progress(events, reader.position / size if reader.position else None)

    bounded = False
    if not report.is_over:
        follow = _compiled(replayer, checker) or partial(_follow_interpreted, replayer)
        bounded = follow(reader, told, until, pause)
    if bounded and not report.findings:
        report.why = f"{reader.path}: judged up to event {until}, as asked; the verdict of the whole is open"
        return report
    return conclude(report, reader)


def _follow_interpreted(
    replayer: Replayer, reader: TraceReader, progress: Callable[[int], None], until: int | None, pause: Pause
) -> bool:
    """Judge event by event; True if there is more behind the last event that was to be judged."""
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


def _compiled(replayer: Replayer, checker: str) -> Follow | None:
    """The compiled checker, if it was asked for, or pays and is there."""
    path = replayer.path
    if not _judges_compiled(checker, path):
        return None
    from kvproof.conformance.compiled.build import the_judge
    from kvproof.conformance.compiled.checker import CompiledChecker

    if CompiledChecker.can_judge(replayer):
        return CompiledChecker(replayer, the_judge(replayer.oracle.actions)).follow_trace
    if checker == COMPILED:
        raise UserError(f"{at(path, 1)}: the compiled checker takes no configuration this large: --checker interpreted")
    return None


def replayer_of(
    reader: TraceReader, *, strict: bool, profile: str | None = None, make: Callable[..., Replayer] = Replayer
) -> Replayer:
    """At the beginning of a trace. `make`: what kind of replayer, from a trace, the deviations to follow and a profile.

    Raises UserError if its header, or `profile`, asks for what this kvproof does not know."""
    path = reader.path
    if reader.header.spec != SPEC_VERSION:
        raise UserError(
            f"{at(path, 1)}: written for specification {reader.header.spec!r}; this kvproof checks {SPEC_VERSION!r}"
        )
    rules = judged_by(reader.header, reader.path, profile, strict=strict)
    replayer = make(reader, rules.known, rules.profile)
    replayer.report.hint = rules.hint
    return replayer


def _judges_compiled(checker: str, path: str | Path) -> bool:
    """Whether the compiled checker was asked for, or pays and is there."""
    if checker == INTERPRETED or (checker == AUTO and not is_large(path)):
        return False
    return is_installed(checker)


def is_installed(checker: str) -> bool:
    """Whether the compiled checker can be had. Raises UserError, with what is missing, if it was asked for and cannot."""
    missing = [name for name in ("numpy", "pyarrow", "numba") if importlib.util.find_spec(name) is None]
    if missing and checker == COMPILED:
        raise UserError(f"the compiled checker needs {' and '.join(missing)}: pip install 'kvproof[scale]'")
    return not missing


def is_large(path: str | Path) -> bool:
    """Whether the interpreted checker would take longer over a trace than the compiled one needs to start."""
    packed = is_columnar(path) or Path(path).suffix == ".gz"
    return Path(path).stat().st_size >= (LARGE_IN_COLUMNS if packed else LARGE)


def conclude(report: Report, reader: TraceReader) -> Report:
    """The verdict over a trace that was followed as far as it goes."""
    end = reader.end
    if report.findings:
        report.verdict = VIOLATES
    elif reader.broken_off is not None:
        report.why = reader.broken_off
    elif end is None:
        report.why = f"{report.path}: no terminal record: the recorder did not finish"
    elif end.dropped:
        report.why = f"{report.path}: the recorder dropped {end.dropped} events"
    elif end.reason != "finished":
        report.why = f"{report.path}: the run ended early: {end.reason}"
    else:
        report.verdict = CONFORMS
    return report
