"""Findings in words, from the events of a run alone: the same in every format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvproof.conformance.errors import at
from kvproof.conformance.replay.finding_words import NO_FAULT, by_the_rule, fault_in_words, page_lines
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.report.formats.run_events import Cell, Found, Troubled
from kvproof.conformance.report.show_replay import replay_command
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import every_invariant

ORDER = "order"
"""In place of an invariant: the event comes where no rule allows it."""


def rule_of(invariants: Mapping[str, str], faults: Sequence[str] = ()) -> str:
    """The invariant that a finding is filed under: what the fault that explains it breaks in the first place, else the first."""
    first = [FAULTS[name].breaks[0] for name in faults if name in FAULTS]
    return next((name for name in (*first, *every_invariant()) if name in invariants), ORDER)


def headline(found: Found) -> str:
    """What is wrong, in one line."""
    broken = ", ".join(found.invariants)
    explained = f" ({', '.join(found.explained_by)})" if found.explained_by else ""
    what = f"breaks {broken}" if broken else found.rule
    return f"event {found.seq}, {found.action} of {found.ledger}: {what}{explained}"


def about_finding(found: Found) -> str:
    """What broke, where, which values and pages, which fault does the same, and the command that shows it again."""
    lines = [f"{at(found.path, found.line)}: {headline(found)}", f"rule: {found.rule}"]
    for d in found.differences:
        lines.append(f"{d.name}: {value(d.name, d.seen)}{by_the_rule(d)}")
    lines += [f"page: {line}" for line in page_lines(found.pages)]
    lines += [f"{invariant}: {sentence}" for invariant, sentence in found.invariants.items()]
    lines += [f"explained by {name}: {fault_in_words(FAULTS[name])}" for name in found.explained_by]
    return "\n".join([*lines, f"again: {replay_command(found.path, profile=found.profile)}"])


def about_cell(cell: Cell) -> str:
    if cell.verdict == "unknown":
        return f"{cell.action}: whether it keeps {cell.invariant} got no answer within the time limit"
    return f"{cell.action} breaks {cell.invariant}: {cell.part}"


def about_trouble(trouble: Troubled) -> str:
    known = ", ".join(trouble.faults) or NO_FAULT
    lines = [f"{trouble.kind}: {trouble.sentence}", f"explained by {known}"]
    lines += [f"{invariant}: {sentence}" for invariant, sentence in trouble.invariants.items()]
    return "\n".join([*lines, f"see: {at(trouble.path, trouble.line)}", f"again: {trouble.again}"])
