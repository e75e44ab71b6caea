"""A finding in words: where it is, the rule, what differs, the pages with their owners, what it breaks, what explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.text import Text

from kvproof.conformance.errors import at
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.replay.verdict import Finding
from kvproof.spec.faults import Fault
from kvproof.spec.profiles import PROFILES

MAX_PAGE_LINES = 8
NO_FAULT = "no fault of the catalogue"
"""What explains a finding that nothing known explains."""


class Differing(Protocol):
    """A value that an event shows, and what the rule says of it."""

    @property
    def name(self) -> str: ...
    @property
    def before(self) -> Any: ...
    @property
    def expected(self) -> Any: ...
    @property
    def seen(self) -> Any: ...


class Told(Protocol):
    """A finding, or what an event of a run tells of one."""

    @property
    def pages(self) -> Sequence[str]: ...
    @property
    def differences(self) -> Sequence[Differing]: ...
    @property
    def invariants(self) -> Mapping[str, str]: ...
    @property
    def rule(self) -> str: ...


def in_one_sentence(found: Told) -> str:
    """What broke: the page that moved wrongly, or the first value that differs, or that no rule applies."""
    if found.pages:
        return found.pages[0]
    for d in found.differences:
        return f"{d.name} is {value(d.name, d.seen)}{by_the_rule(d)}"
    return next(iter(found.invariants.values()), found.rule)


def invariant_in_words(invariant: str, sentence: str) -> str:
    return f"{sentence} ({invariant})"


def by_the_rule(d: Differing) -> str:
    """`, the rule says 3 (before: 2)`: what follows a value that was seen."""
    was = f" (before: {value(d.name, d.before)})" if d.before is not None else ""
    return f", the rule says {value(d.name, d.expected)}{was}"


def fault_in_words(fault: Fault, profile: str | None = None) -> str:
    """What it does, its name, and where that was reported. `profile`: by whose rules the finding was made."""
    named = known_in(fault.id, profile)
    return f"{fault.summary} ({f'{named}, {fault.source}' if fault.source else named})"


def page_lines(pages: Sequence[str]) -> list[str]:
    """What is wrong with which page; of many only the first."""
    left = len(pages) - MAX_PAGE_LINES
    return [*pages[:MAX_PAGE_LINES], *([f"and {left} more pages"] if left > 0 else [])]


def finding_lines(finding: Finding, times: int = 1) -> list[Text]:
    e = finding.event
    where = f"{at(finding.path, finding.line)}: event {e.seq}" + (f", step {e.step}" if e.step is not None else "")
    who = f"{finding.ledger}" + (f", turn {e.turn}" if e.turn else "") + (f", row {e.row}" if e.row is not None else "")
    lines = [Text(f"  {in_one_sentence(finding)}", "bold red")]
    lines.append(Text("  where     ") + Text(f"{where}: {finding.action}", "bold") + Text(f"  ({who})"))
    lines.append(Text("  rule      ") + Text(_rule(finding)))
    for d in finding.differences:
        seen = Text(value(d.name, d.seen), "bold red")
        lines.append(Text(f"  differs   {d.name}: ") + seen + Text(by_the_rule(d)))
    for number, line in enumerate(page_lines(finding.pages)[1:], 1):  # the first is the sentence above
        lines.append(Text(("  page      " if number < MAX_PAGE_LINES else " " * 12) + line))
    label = "breaks" if finding.explained_by or finding.pages else "concerns"
    for invariant, sentence in finding.invariants.items():
        lines.append(Text(f"  {label:<10}") + Text(invariant_in_words(invariant, sentence)))
    for fault in finding.explained_by:
        lines.append(Text("  fault     ") + Text(fault_in_words(fault, finding.profile)))
        lines.append(
            Text(f"            with {fault.id} on, the model does the same: kvproof prove --fault {fault.id}", "dim")
        )
    if finding.cause:
        lines.append(Text("  cause     ") + Text(finding.cause, "bold"))
    elif not finding.explained_by:
        lines.append(Text(f"  fault     {NO_FAULT} does this", "dim"))
    if times > 1:
        lines.append(Text(f"            and {times - 1} more events like this", "dim"))
    return lines


def _rule(finding: Finding) -> str:
    if finding.profile is None or finding.action not in PROFILES[finding.profile].rules:
        return finding.rule
    return f"{finding.rule}, by the design of {finding.profile}"


def known_in(fault_id: str, profile: str | None) -> str:
    """A deviation, and whose it is known to be."""
    is_known = profile is not None and fault_id in PROFILES[profile].deviations
    return f"{fault_id} of {profile}" if is_known else fault_id


def finding_json(f: Finding) -> dict[str, Any]:
    """One finding for machines."""
    return {
        "line": f.line,
        "seq": f.event.seq,
        "ledger": f.ledger,
        "action": f.action,
        "rule": f.rule,
        "differences": [vars(d) for d in f.differences],
        "pages": list(f.pages),
        "invariants": f.invariants,
        "explained_by": [fault.id for fault in f.explained_by],
        "cause": f.cause,
    }
