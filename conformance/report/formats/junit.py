"""JUnit XML: a test case for each trace, each cell of a proof, each kind of trouble, each step of the gate.

`failure`: something is broken. `error`: no verdict, for whatever reason; a build must not take that for a pass. The form is that
of Jenkins' `junit-10.xsd`, which GitLab, Jenkins, Buildkite and pytest's own tools agree on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.printable import for_xml
from kvproof.conformance.report.formats.run_events import (
    Cell,
    CouldNot,
    Ended,
    Found,
    Fuzzed,
    GateStep,
    Judged,
    Killed,
    LemmaSaid,
    Proved,
    Started,
    Troubled,
    Vacuous,
)
from kvproof.conformance.report.formats.sentences import about_cell, about_finding, about_trouble, headline, rule_of

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"


@dataclass(frozen=True)
class Case:
    """`outcome`: None where it passed."""

    classname: str
    name: str
    seconds: float = 0.0
    outcome: str | None = None
    kind: str = ""
    message: str = ""
    text: str = ""

    def failed(self, kind: str, message: str, text: str = "") -> Case:
        return replace(self, outcome=FAILURE, kind=kind, message=message, text=text)

    def without_verdict(self, kind: str, message: str) -> Case:
        return replace(self, outcome=ERROR, kind=kind, message=message)


def junit(events: Iterable[Any]) -> str:
    """The whole run as one XML document, which ends with a line end."""
    told = list(events)
    started = next(event for event in told if isinstance(event, Started))
    cases = list(_cases(told))
    if not cases:
        cases = [Case("kvproof", started.command).without_verdict("nothing checked", "nothing was checked")]
    root = ElementTree.Element("testsuites", {"name": "kvproof", **_counts(cases, skipped=False)})
    of_command = {"name": f"kvproof {started.command}", **_counts(cases, skipped=True)}
    suite = ElementTree.SubElement(root, "testsuite", of_command)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**started.versions, **started.arguments}.items():
        ElementTree.SubElement(properties, "property", name=for_xml(str(name)), value=for_xml(str(value)))
    for case in cases:
        suite.append(_element(case))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _counts(cases: list[Case], *, skipped: bool) -> dict[str, str]:
    number = Counter(case.outcome for case in cases)
    counted = {"tests": len(cases), "failures": number[FAILURE], "errors": number[ERROR]}
    counted |= {"skipped": number[SKIPPED]} if skipped else {}
    return {**{name: str(n) for name, n in counted.items()}, "time": f"{sum(c.seconds for c in cases):.3f}"}


def _element(case: Case) -> ElementTree.Element:
    names = {"classname": for_xml(case.classname), "name": for_xml(case.name), "time": f"{case.seconds:.3f}"}
    element = ElementTree.Element("testcase", names)
    if case.outcome is not None:
        said = {"type": for_xml(case.kind), "message": for_xml(case.message)}
        ElementTree.SubElement(element, case.outcome, said).text = for_xml(case.text or case.message)
    return element


def _cases(events: list[Any]) -> Iterator[Case]:
    findings: list[Found] = []
    for event in events:
        if isinstance(event, Found):
            findings.append(event)
        elif isinstance(event, Judged):
            yield _of_trace(event, findings)
            findings = []
        elif type(event) in _CASES:
            yield _CASES[type(event)](event)
    ended = events[-1]
    if isinstance(ended, Ended) and ended.exit_code == ExitCode.INTERRUPTED:
        yield Case("kvproof", "the whole run").without_verdict("interrupted", ended.meaning)


def _of_trace(judged: Judged, findings: list[Found]) -> Case:
    case = Case("kvproof.trace", judged.path)
    if findings:
        first = findings[0]
        rule = rule_of(first.invariants, first.explained_by)
        return case.failed(rule, headline(first), "\n\n".join(map(about_finding, findings)))
    if judged.expected is not None and judged.expected != judged.verdict:
        return case.failed("golden", f"{judged.verdict}; it must be: {judged.expected}")
    if judged.verdict == "incomplete" and judged.expected is None:
        return case.without_verdict("incomplete", judged.why)
    if not judged.events:
        return case.without_verdict("nothing checked", f"no events in {judged.path}")
    return case


def _of_cell(cell: Cell) -> Case:
    case = Case(f"kvproof.proof.{cell.machine}.{cell.action}", cell.invariant, cell.seconds)
    if cell.verdict == "broken":
        return case.failed(cell.invariant, about_cell(cell))
    return case if cell.verdict == "proved" else case.without_verdict("unknown", about_cell(cell))


def _of_lemma(lemma: LemmaSaid) -> Case:
    case = Case(f"kvproof.proof.effects.{lemma.effect}", lemma.lemma, lemma.seconds)
    said = f"{lemma.effect}: {lemma.lemma} is {lemma.verdict}"
    if lemma.verdict == "broken":
        return case.failed("broken", said)
    return case if lemma.verdict == "proved" else case.without_verdict("unknown", said)


def _of_proof(proof: Proved) -> Case:
    case = Case("kvproof.proof", proof.of)
    if proof.verdict in ("broken", "disputed"):
        why = "solvers disagree" if proof.verdict == "disputed" else "not every part holds"
        return case.failed(proof.verdict, f"{proof.of}: {why}")
    if proof.verdict == "unknown" or not proof.complete:
        return case.without_verdict("unknown", f"{proof.of}: the proof has no end")
    return case


def _of_trouble(trouble: Troubled) -> Case:
    kind = rule_of(trouble.invariants, trouble.faults) if trouble.invariants else trouble.kind
    case = Case("kvproof.fuzz", trouble.signature, trouble.seconds)
    return case.failed(kind, trouble.sentence, about_trouble(trouble))


def _of_campaign(campaign: Fuzzed) -> Case:
    case = Case("kvproof.fuzz", f"{campaign.target}, seed {campaign.seed}", campaign.seconds)
    return case if campaign.schedules else case.without_verdict("nothing checked", "no schedule was played")


def _of_kill(kill: Killed) -> Case:
    case = Case("kvproof.kill", kill.fault)
    return (
        case.failed("blind", f"{kill.fault} is not found by {' nor '.join(kill.missed_by)}") if kill.missed_by else case
    )


def _of_step(step: GateStep) -> Case:
    outcome = {"passed": None, "failed": FAILURE, "not asked for": SKIPPED}.get(step.verdict, ERROR)
    return Case("kvproof.gate", step.name, step.seconds, outcome, step.verdict, step.detail)


_CASES: dict[type, Callable[[Any], Case]] = {
    Cell: _of_cell,
    LemmaSaid: _of_lemma,
    Vacuous: lambda v: Case("kvproof.proof", v.what).failed("vacuous", f"vacuous: {v.what}"),
    Proved: _of_proof,
    Troubled: _of_trouble,
    Fuzzed: _of_campaign,
    Killed: _of_kill,
    GateStep: _of_step,
    CouldNot: lambda c: Case("kvproof", c.what).without_verdict("could not", c.why),
}
