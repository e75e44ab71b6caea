"""What a run checked and what came of it, folded from its events once: JUnit writes each check as a case, SARIF each problem.

A check is a trace, a cell of a proof, a kind of trouble, a fault of the gate, a step of it. It holds, or it has problems, or it
has no verdict, which no build may take for a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

from kvproof.conformance.errors import at
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.finding_words import (
    NO_FAULT,
    by_the_rule,
    fault_in_words,
    in_one_sentence,
    invariant_in_words,
    page_lines,
)
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.report.formats.run_events import (
    NOT_REACHED,
    Cell,
    CouldNot,
    Ended,
    Found,
    FunctionProved,
    Fuzzed,
    GateStep,
    Judged,
    Killed,
    LemmaSaid,
    Proved,
    Troubled,
    Vacuous,
)
from kvproof.conformance.report.show_replay import replay_command, weaker
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import every_invariant

ORDER = "order"
"""In place of an invariant: the event comes where no rule allows it."""


@dataclass(frozen=True)
class Problem:
    """One thing that is broken. `rule`: the invariant, or one of `sarif.OTHER_RULES`. `lines`: first the headline."""

    rule: str
    lines: tuple[str, ...]
    path: str | None = None
    line: int | None = None
    """None where a file has no lines of its own."""
    place: str = ""
    """Where it is, in the model's words."""
    kind: str = "function"
    """What `place` is, to SARIF."""
    same: tuple[str, ...] = ()
    """By what a problem is known again in another run; nothing: by its place."""
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One thing that was checked. Neither `problems` nor `open`: it holds."""

    group: str
    name: str
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()
    open: tuple[str, str] | None = None
    """The kind of reason for which there is no verdict, and the reason."""
    skipped: str = ""
    """Why it was left out."""
    notes: tuple[str, ...] = ()
    """What weakens it."""
    is_sum: bool = False
    """Its problems are those of the checks before it."""

    def with_problem(self, rule: str, *lines: str, **where: Any) -> Check:
        return replace(self, problems=(*self.problems, Problem(rule, lines, **where)))

    def without_verdict(self, kind: str, why: str) -> Check:
        return replace(self, open=(kind, why))


def checks_of(events: Iterable[Any]) -> Iterator[Check]:
    """In the order in which they were said. What was found in a trace is said before the trace."""
    findings: list[Found] = []
    for event in events:
        if isinstance(event, Found):
            findings.append(event)
        elif isinstance(event, Judged):
            yield _of_trace(event, findings)
            findings = []
        elif (check := _check_of(event)) is not None:
            yield check


def rule_of(invariants: Mapping[str, str], faults: Sequence[str] = ()) -> str:
    """The invariant that a finding is filed under: what the fault that explains it breaks in the first place, else the first."""
    first = [FAULTS[name].breaks[0] for name in faults if name in FAULTS]
    return next((name for name in (*first, *every_invariant()) if name in invariants), ORDER)


def _of_trace(judged: Judged, findings: Sequence[Found]) -> Check:
    path, check = (
        judged.path,
        Check("kvproof.trace", judged.path, notes=(*weaker(judged.allowed_deviations, judged.gaps),)),
    )
    for found in findings:
        check = _with_finding(check, found)
    if judged.verdict == "incomplete" != judged.expected:
        return check.without_verdict("incomplete", f"{path}: {judged.why}")
    if not findings and judged.expected not in (None, judged.verdict):
        rule = "blind" if judged.expected == "violates" else "golden"
        said = f"{path}: {judged.verdict}; it must be: {judged.expected}"
        check = check.with_problem(rule, said, path=path, line=1, same=(path,))
    return check if judged.events else check.without_verdict("nothing checked", f"no events in {path}")


def _with_finding(check: Check, found: Found) -> Check:
    """What broke, where, which values and pages, which fault does the same, and the command that shows it again."""
    codes = ", ".join((*found.invariants, *found.explained_by))
    return check.with_problem(
        rule_of(found.invariants, found.explained_by),
        f"{in_one_sentence(found)}: event {found.seq}, {found.action} of {found.ledger}"
        + (f" ({codes})" if codes else ""),
        f"where: {at(found.path, found.line)}",
        f"rule: {found.rule}",
        *(f"{d.name}: {value(d.name, d.seen)}{by_the_rule(d)}" for d in found.differences),
        *(f"page: {line}" for line in page_lines(found.pages)),
        *(f"breaks: {invariant_in_words(invariant, sentence)}" for invariant, sentence in found.invariants.items()),
        *(f"fault: {fault_in_words(FAULTS[name], found.profile)}" for name in found.explained_by),
        *([f"cause: {found.cause}"] if found.cause else ()),
        f"again: {replay_command(found.path, profile=found.profile)}",
        path=found.path,
        line=found.line,
        place=f"event {found.seq}: {found.action}",
        kind="element",
        same=(found.action, *found.invariants, *found.explained_by),
        more={"invariants": list(found.invariants), "explained_by": list(found.explained_by), "seq": found.seq},
    )


@singledispatch
def _check_of(event: Any) -> Check | None:
    """The check that an event of a run tells of; None: of none."""
    return None


@_check_of.register
def _(cell: Cell) -> Check:
    place = f"{cell.machine}.{cell.action}"
    check = Check(f"kvproof.proof.{place}", cell.invariant, cell.seconds)
    if cell.verdict == "unknown":
        why = f"{cell.action}: whether it keeps {cell.invariant} got no answer within the time limit"
        return check.without_verdict("unknown", why)
    if cell.verdict == "broken":
        rule = cell.invariant if cell.invariant in every_invariant() else "helper"
        said = f"{cell.action} breaks {cell.invariant}: {cell.part}"
        same = (cell.action, cell.invariant)
        return check.with_problem(rule, said, path=cell.path, line=cell.line, place=place, same=same)
    return check


@_check_of.register
def _(lemma: LemmaSaid) -> Check:
    check = Check(f"kvproof.proof.effects.{lemma.effect}", lemma.lemma, lemma.seconds)
    if lemma.verdict == "unknown":
        return check.without_verdict("unknown", f"{lemma.effect} / {lemma.lemma}: no answer")
    if lemma.verdict == "broken":
        return check.with_problem("effect", f"{lemma.effect} does not keep {lemma.lemma}", place=lemma.effect)
    return check


@_check_of.register
def _(vacuous: Vacuous) -> Check:
    return Check("kvproof.proof", vacuous.what).with_problem("vacuous", vacuous.what, place=vacuous.what)


@_check_of.register
def _(proof: Proved) -> Check:
    check = Check("kvproof.proof", proof.of, is_sum=proof.verdict == "broken")
    if proof.verdict == "disputed":
        return check.with_problem("disputed", f"{proof.of}: solvers disagree", place=proof.of)
    if proof.verdict == "broken":
        return check.with_problem("broken", f"{proof.of}: not every part holds")
    if proof.verdict == "unknown" or not proof.complete:
        return check.without_verdict("unknown", f"{proof.of}: the proof has no end")
    return check


@_check_of.register
def _(told: FunctionProved) -> Check | None:
    if told.verdict == "absent":
        return None
    check = Check(f"kvproof.code.{told.target}", told.function, told.seconds)
    for differs in told.differences if told.verdict == "differs" else ():
        check = check.with_problem(
            "code",
            f"{told.function} differs from the rule {told.rule}: not so: {differs.sentence}",
            *([f"the code: {differs.code}; the rule: {differs.rule}"] if differs.code or differs.rule else ()),
            f"in the state {', '.join(f'{name} = {number}' for name, number in differs.state.items() if number)}",
            f"after {'; '.join(differs.schedule)}" if differs.schedule else NOT_REACHED,
            *([f"every path does exactly what this says: {told.instead}"] if told.instead else ()),
            path=told.path,
            line=told.line,
            place=told.function,
            same=(told.function, differs.sentence),
        )
    if told.verdict in ("not understood", "unknown"):
        return check.without_verdict(told.verdict, f"{told.function}: {'; '.join(told.open)}")
    return check


@_check_of.register
def _(trouble: Troubled) -> Check:
    in_trace = trouble.seq is not None
    return Check("kvproof.fuzz", trouble.signature, trouble.seconds).with_problem(
        rule_of(trouble.invariants, trouble.faults) if in_trace else "target",
        trouble.sentence,
        f"{trouble.kind}: {trouble.signature}",
        f"explained by {', '.join(trouble.faults) or NO_FAULT}",
        *(f"{invariant}: {sentence}" for invariant, sentence in trouble.invariants.items()),
        f"see: {at(trouble.path, trouble.line)}",
        f"again: {trouble.again}",
        path=trouble.path,
        line=trouble.line,
        place=f"event {trouble.seq}" if in_trace else trouble.kind,
        kind="element",
        same=(trouble.signature,),
        more={"faults": list(trouble.faults), "times": trouble.times},
    )


@_check_of.register
def _(campaign: Fuzzed) -> Check:
    check = Check("kvproof.fuzz", f"{campaign.target}, seed {campaign.seed}", campaign.seconds)
    return check if campaign.schedules else check.without_verdict("nothing checked", "no schedule was played")


@_check_of.register
def _(kill: Killed) -> Check:
    check = Check("kvproof.kill", kill.fault)
    if not kill.missed_by:
        return check
    said = f"{kill.fault} ({FAULTS[kill.fault].summary}) is not found by {' nor '.join(kill.missed_by)}"
    return check.with_problem("blind", said, place=kill.fault, same=(kill.fault, *kill.missed_by))


@_check_of.register
def _(step: GateStep) -> Check:
    check = Check("kvproof.gate", step.name, step.seconds, is_sum=True)
    if step.verdict == "failed":
        return check.with_problem("failed", step.detail)
    if step.verdict == "not asked for":
        return replace(check, skipped=step.detail)
    if step.verdict in ("could not run", "no verdict"):
        return check.without_verdict(step.verdict, f"{step.name}: {step.detail}")
    return check


@_check_of.register
def _(could_not: CouldNot) -> Check:
    return Check("kvproof", could_not.what).without_verdict("could not", could_not.why)


@_check_of.register
def _(ended: Ended) -> Check | None:
    if ended.exit_code != ExitCode.INTERRUPTED:
        return None
    return Check("kvproof", "the whole run").without_verdict("interrupted", ended.meaning)
