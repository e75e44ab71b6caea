"""JUnit XML: a test case for each trace, each cell of a proof, each kind of trouble, each step of the gate.

`failure`: something is broken. `error`: no verdict, for whatever reason; a build must not take that for a pass. The form is that
of Jenkins' `junit-10.xsd`, which GitLab, Jenkins, Buildkite and pytest's own tools agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
    outcome: str | None = None
    kind: str = ""
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def junit(events: Iterable[Any]) -> str:
    """The whole run as one XML document, which ends with a line end."""
    told = list(events)
    started = next(event for event in told if isinstance(event, Started))
    cases = list(_cases(told))
    if not cases:
        cases = [Case("kvproof", started.command, ERROR, "nothing checked", "nothing was checked")]
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
    counted = {"tests": len(cases), "failures": _number(cases, FAILURE), "errors": _number(cases, ERROR)}
    counted |= {"skipped": _number(cases, SKIPPED)} if skipped else {}
    return {**{name: str(n) for name, n in counted.items()}, "time": f"{sum(c.seconds for c in cases):.3f}"}


def _number(cases: list[Case], outcome: str) -> int:
    return sum(case.outcome == outcome for case in cases)


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
        yield Case("kvproof", "the whole run", ERROR, "interrupted", ended.meaning)


def _of_trace(judged: Judged, findings: list[Found]) -> Case:
    case = Case("kvproof.trace", judged.path)
    if findings:
        first = findings[0]
        text = "\n\n".join(about_finding(finding) for finding in findings)
        return Case(
            case.classname, case.name, FAILURE, rule_of(first.invariants, first.explained_by), headline(first), text
        )
    if judged.expected is not None and judged.expected != judged.verdict:
        return Case(case.classname, case.name, FAILURE, "golden", f"{judged.verdict}; it must be: {judged.expected}")
    if judged.verdict == "incomplete" and judged.expected is None:
        return Case(case.classname, case.name, ERROR, "incomplete", judged.why)
    if not judged.events:
        return Case(case.classname, case.name, ERROR, "nothing checked", f"no events in {judged.path}")
    return case


def _of_cell(cell: Cell) -> Case:
    classname, seconds = f"kvproof.proof.{cell.machine}.{cell.action}", cell.seconds
    if cell.verdict == "proved":
        return Case(classname, cell.invariant, seconds=seconds)
    outcome, kind = (FAILURE, cell.invariant) if cell.verdict == "broken" else (ERROR, "unknown")
    return Case(classname, cell.invariant, outcome, kind, about_cell(cell), seconds=seconds)


def _of_lemma(lemma: LemmaSaid) -> Case:
    classname, seconds = f"kvproof.proof.effects.{lemma.effect}", lemma.seconds
    if lemma.verdict == "proved":
        return Case(classname, lemma.lemma, seconds=seconds)
    outcome = FAILURE if lemma.verdict == "broken" else ERROR
    return Case(classname, lemma.lemma, outcome, lemma.verdict, f"{lemma.effect}: {lemma.lemma} is {lemma.verdict}")


def _of_proof(proof: Proved) -> Case:
    case = Case("kvproof.proof", proof.of)
    if proof.verdict in ("broken", "disputed"):
        why = "solvers disagree" if proof.verdict == "disputed" else "not every part holds"
        return Case(case.classname, case.name, FAILURE, proof.verdict, f"{proof.of}: {why}")
    if proof.verdict == "unknown" or not proof.complete:
        return Case(case.classname, case.name, ERROR, "unknown", f"{proof.of}: the proof has no end")
    return case


def _of_trouble(trouble: Troubled) -> Case:
    kind = rule_of(trouble.invariants, trouble.faults) if trouble.invariants else trouble.kind
    return Case(
        "kvproof.fuzz", trouble.signature, FAILURE, kind, trouble.sentence, about_trouble(trouble), trouble.seconds
    )


def _of_campaign(campaign: Fuzzed) -> Case:
    case = Case("kvproof.fuzz", f"{campaign.target}, seed {campaign.seed}", seconds=campaign.seconds)
    if campaign.schedules:
        return case
    return Case(case.classname, case.name, ERROR, "nothing checked", "no schedule was played")


def _of_kill(kill: Killed) -> Case:
    case = Case("kvproof.kill", kill.fault)
    if not kill.missed_by:
        return case
    return Case(
        case.classname, case.name, FAILURE, "blind", f"{kill.fault} is not found by {' nor '.join(kill.missed_by)}"
    )


def _of_step(step: GateStep) -> Case:
    outcome = {"passed": None, "failed": FAILURE, "not asked for": SKIPPED}.get(step.verdict, ERROR)
    return Case("kvproof.gate", step.name, outcome, step.verdict, step.detail, seconds=step.seconds)


_CASES: dict[type, Callable[[Any], Case]] = {
    Cell: _of_cell,
    LemmaSaid: _of_lemma,
    Vacuous: lambda v: Case("kvproof.proof", v.what, FAILURE, "vacuous", f"vacuous: {v.what}"),
    Proved: _of_proof,
    Troubled: _of_trouble,
    Fuzzed: _of_campaign,
    Killed: _of_kill,
    GateStep: _of_step,
    CouldNot: lambda c: Case("kvproof", c.what, ERROR, "could not", c.why),
}
