"""A replay's verdicts as events of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.many_traces import CouldNotJudge, coverage_of
from kvproof.conformance.replay.many_traces import Judged as Answer
from kvproof.conformance.replay.verdict import Finding, Report
from kvproof.conformance.report.formats.run_events import CouldNot, Covered, Found, Judged


def events_of_replay(answers: Iterable[Answer]) -> Iterator[Any]:
    """Of each trace what was found, then its verdict; after all of them what they exercised."""
    listed = list(answers)
    for answer in listed:
        yield from events_of_trace(answer)
    yield covered(coverage_of(listed))


def events_of_trace(answer: Answer) -> Iterator[Any]:
    if isinstance(answer, CouldNotJudge):
        yield CouldNot(what=str(answer.path), why=answer.message)
        return
    yield from map(found, answer.findings)
    yield judged(answer)


def found(finding: Finding) -> Found:
    return Found.about(
        finding,
        finding.event,
        path=str(finding.path),
        differences=[vars(d) for d in finding.differences],
        explained_by=[fault.id for fault in finding.explained_by],
    )


def judged(report: Report) -> Judged:
    return Judged.about(
        report,
        path=str(report.path),
        page_moves=report.pages_moved,
        findings=len(report.findings),
        config=report.config.model_dump(mode="json"),
        allowed_deviations=report.allowed,
        known_deviations=dict(sorted(report.followed.items())),
    )


def covered(coverage: Coverage) -> Covered:
    return Covered(
        actions=_counts(coverage.actions),
        guards=_counts(coverage.branches),
        invariants=_counts(coverage.invariants),
        fields=_counts(coverage.fields),
    )


def _counts(counts: dict[str, int]) -> dict[str, int]:
    return {name: times for name, times in sorted(counts.items()) if times}
