"""JUnit XML: a test case for each check of a run.

`failure`: something is broken. `error`: no verdict, for whatever reason; a build must not take that for a pass. `system-out`:
what weakens a verdict. The form is that of Jenkins' `junit-10.xsd`, which GitLab, Jenkins, Buildkite and pytest's own tools
agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

from kvproof.conformance.printable import for_xml
from kvproof.conformance.report.formats.checks import Check, checks_of
from kvproof.conformance.report.formats.run_events import Started


def junit(events: Iterable[Any]) -> str:
    """The whole run as one XML document, which ends with a line end."""
    told = list(events)
    started = next(event for event in told if isinstance(event, Started))
    nothing = Check("kvproof", started.command).without_verdict("nothing checked", "nothing was checked")
    checks = list(checks_of(told)) or [nothing]
    cases = [_case(check) for check in checks]
    counted = {
        "tests": str(len(cases)),
        "failures": str(_number(cases, "failure")),
        "errors": str(_number(cases, "error")),
        "time": f"{sum(check.seconds for check in checks):.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "kvproof", **counted})
    of_command = {"name": f"kvproof {started.command}", **counted, "skipped": str(_number(cases, "skipped"))}
    suite = ElementTree.SubElement(root, "testsuite", of_command)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**started.versions, **started.arguments}.items():
        ElementTree.SubElement(properties, "property", name=for_xml(str(name)), value=for_xml(str(value)))
    suite.extend(cases)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _number(cases: Sequence[ElementTree.Element], outcome: str) -> int:
    return sum(case.find(outcome) is not None for case in cases)


def _case(check: Check) -> ElementTree.Element:
    names = {"classname": for_xml(check.group), "name": for_xml(check.name), "time": f"{check.seconds:.3f}"}
    case = ElementTree.Element("testcase", names)
    if check.problems:
        first = check.problems[0]
        text = "\n\n".join("\n".join(problem.lines) for problem in check.problems)
        _add(case, "failure", first.rule, first.lines[0], text)
    elif check.open is not None:
        kind, why = check.open
        _add(case, "error", kind, why, why)
    elif check.skipped:
        _add(case, "skipped", "not asked for", check.skipped, check.skipped)
    if check.notes:
        ElementTree.SubElement(case, "system-out").text = for_xml("\n".join(check.notes))
    return case


def _add(case: ElementTree.Element, outcome: str, kind: str, message: str, text: str) -> None:
    said = {"type": for_xml(kind), "message": for_xml(message)}
    ElementTree.SubElement(case, outcome, said).text = for_xml(text)
