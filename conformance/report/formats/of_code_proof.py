"""The findings of a proof of code as events of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvproof.conformance.code_proof.findings import Finding
from kvproof.conformance.code_proof.targets import Target
from kvproof.conformance.report.formats.run_events import FunctionDiffers, FunctionProved


def events_of_code_proof(findings: Iterable[Finding], target: Target) -> Iterator[FunctionProved]:
    for finding in findings:
        path = target.place(finding.path) if finding.path is not None else None
        differences = tuple(
            FunctionDiffers.about(shown, schedule=tuple(map(str, shown.schedule))) for shown in finding.differences
        )
        yield FunctionProved.about(finding, target=target.label, path=path, differences=differences)
