"""The gate's third step: traces that are kept, each with the verdict that it must have, for good or for bad.

A folder may hold `expected.json`: the verdict of each trace, the profile it is judged by, the number of its events and, of one
that must violate, the fault that must be named. Every trace of the folder must be in it. Without one all must conform.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.gate.steps import COULD_NOT, FAILED, GOLDEN, OPEN, PASSED, Outcome, Plan
from kvproof.conformance.replay.many_traces import traces_in
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, Report
from kvproof.conformance.report.formats.of_replay import found, judged
from kvproof.conformance.report.formats.run_events import CouldNot, Verdict
from kvproof.conformance.traces.data_file import SMALL, read_text
from kvproof.spec.faults import FAULTS

SHIPPED = Path(__file__).with_name("golden")
EXPECTED = "expected.json"


class Expected(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Verdict = CONFORMS  # type: ignore[assignment]
    fault: str | None = None
    events: int | None = None
    profile: str | None = None


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    traces: dict[str, Expected]


def judge_golden(plan: Plan) -> Outcome:
    """Raises UserError for a folder without a trace, or one that does not say what it expects."""
    folders = plan.golden or (SHIPPED,)
    problems, could_not, is_open, events, traces = [], [], False, 0, 0
    for trace, expected in (pair for folder in folders for pair in kept_in(folder, plan.profile)):
        plan.show(f"{GOLDEN}: {trace.name}")
        try:
            report = replay(trace, profile=expected.profile, checker=Chosen())
        except UserError as error:
            plan.stream.tell(CouldNot(what=str(trace), why=error.message))
            could_not.append(error.message)
            continue
        events, traces = events + report.events, traces + 1
        wrong = what_differs(report, expected)
        if wrong:
            plan.stream.tell(*map(found, report.findings))
            problems.append(f"{trace}: {wrong}")
        plan.stream.tell(judged(report).model_copy(update={"expected": expected.verdict}))
        is_open = is_open or (report.verdict == INCOMPLETE and bool(wrong))
    detail = f"{traces} traces, {events} events" + (f", {len(problems)} otherwise than they must" if problems else "")
    if could_not:
        return Outcome(
            GOLDEN, COULD_NOT if not problems else FAILED, f"{detail}; {could_not[0]}", (*problems, *could_not)
        )
    if problems:
        return Outcome(GOLDEN, OPEN if is_open and len(problems) == 1 else FAILED, detail, tuple(problems))
    return Outcome(GOLDEN, PASSED, detail)


def kept_in(folder: Path, profile: str | None = None) -> Iterator[tuple[Path, Expected]]:
    """Each trace with what it must come to. `profile`: for traces of which nothing else is said."""
    traces = traces_in([folder])
    page = folder / EXPECTED
    if not page.is_file():
        yield from ((trace, Expected(profile=profile)) for trace in traces)
        return
    try:
        kept = _Kept.model_validate_json(read_text(page, SMALL)).traces
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"{page}: {' '.join(str(error).split())[:300]}; docs/gate.md shows the form") from error
    names = {trace.relative_to(folder).as_posix(): trace for trace in traces}
    if beside := names.keys() ^ kept.keys():
        here = [f"{name} is {'not in it' if name in names else 'not there'}" for name in sorted(beside)]
        raise UserError(f"{page} does not fit its folder: {', '.join(here)}")
    for name, expected in kept.items():
        if expected.fault is not None and expected.fault not in FAULTS:
            raise UserError(f"{page}: {name}: no fault {expected.fault!r}; kvproof list faults")
        yield names[name], expected


def what_differs(report: Report, expected: Expected) -> str:
    """In words; nothing where it is as it must be."""
    if report.verdict != expected.verdict:
        first = report.first
        where = (
            f" at event {first.event.seq}, {first.action}"
            if first is not None
            else f": {report.why}"
            if report.why
            else ""
        )
        return f"{report.verdict}{where}; it must be: {expected.verdict}"
    named = sorted({fault.id for finding in report.findings for fault in finding.explained_by})
    if expected.fault is not None and expected.fault not in named:
        return f"violates, but {', '.join(named) or 'nothing'} is named, not {expected.fault}"
    if expected.events is not None and report.events != expected.events:
        return f"{report.events} events were judged; it must be {expected.events}"
    return ""
