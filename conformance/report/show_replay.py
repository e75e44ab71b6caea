"""A replay's verdict for people: the first bad event, the rule, the pages with their owners, the fault that explains it; and what
was checked: counts by action, invariant and field, branches of guards that were never taken."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from kvproof.conformance.replay.compared_fields import SHOWN
from kvproof.conformance.replay.coverage import COUNTED, WITHOUT_RULE, Coverage, all_branches
from kvproof.conformance.replay.finding_words import finding_json, finding_lines, known_in
from kvproof.conformance.replay.rules_of_trace import rules_of
from kvproof.conformance.replay.verdict import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS
from kvproof.spec.trace import Config

STYLES = {CONFORMS: "bold green", VIOLATES: "bold red", INCOMPLETE: "bold yellow"}


OF_A_REPLAY = (*ACTIONS, *WITHOUT_RULE)


def coverage_facts(coverage: Coverage, profiles: Sequence[str | None]) -> list[tuple[str, str]]:
    """What happened of all that could have been wrong, with counts. `profiles`: whose rules were judged by."""
    by_action = _branches(profiles)
    branches = [branch for of_one in by_action.values() for branch in of_one]
    judged = [branch for name, of_one in by_action.items() if coverage.actions[name] for branch in of_one]
    taken = sum(coverage.branches[branch] > 0 for branch in branches)
    never = [branch for branch in judged if not coverage.branches[branch]]
    return [
        ("actions", _counted(coverage.actions, OF_A_REPLAY)),
        ("invariants", _counted(coverage.invariants, COUNTED)),
        ("fields", _counted(coverage.fields, SHOWN)),
        ("guards", f"{taken} of {len(branches)} branches taken; {len(never)} of actions that happened never were"),
    ]


def exercised_lines(coverage: Coverage, profiles: Sequence[str | None], *, every: bool) -> list[Text]:
    """How much of that happened, in one line; with `every`, all of it, and each branch of a guard with its count."""
    branches = [branch for of_one in _branches(profiles).values() for branch in of_one]
    if every:
        counts = [(str(coverage.branches[branch]), branch) for branch in branches]
        return [_line(name, text) for name, text in (*coverage_facts(coverage, profiles), *counts)]
    parts = (
        (coverage.actions, OF_A_REPLAY, "actions"),
        (coverage.invariants, COUNTED, "invariants"),
        (coverage.fields, SHOWN, "fields"),
        (coverage.branches, branches, "branches of guards"),
    )
    counted = (f"{sum(seen[name] > 0 for name in names)} of {len(names)} {what}" for seen, names, what in parts)
    return [_line("exercised", f"{', '.join(counted)} (--coverage: which)")]


def _branches(profiles: Sequence[str | None]) -> dict[str, tuple[str, ...]]:
    return all_branches(map(rules_of, dict.fromkeys(profiles)))


def _line(name: str, text: str) -> Text:
    return Text(f"  {name:<10} {text}", "dim")


def _counted(counts: Counter[str], names: Iterable[str]) -> str:
    """Those that happened with their counts, then those that never did."""
    listed = list(names)
    happened = ", ".join(f"{name} {counts[name]}" for name in listed if counts[name])
    never = [name for name in listed if not counts[name]]
    if not never:
        return happened
    return f"{happened or 'none'}; never {', '.join(never)}"


def coverage_json(coverage: Coverage, profile: str | None) -> dict[str, Any]:
    """Zeros included: what never happened is the point."""
    by_action = all_branches([rules_of(profile)])
    return {
        "actions": {name: coverage.actions[name] for name in OF_A_REPLAY},
        "guards": {branch: coverage.branches[branch] for of_one in by_action.values() for branch in of_one},
        "invariants": {name: coverage.invariants[name] for name in COUNTED},
        "fields": {name: coverage.fields[name] for name in SHOWN},
    }


def verdict_lines(report: Report, *, first_event: int = 0, coverage: bool = False) -> list[Text]:
    """The whole verdict. `first_event`: findings at events before it are counted, not shown."""
    lines = [verdict_line(report), *weaker_lines(report), *reason_lines(report, first_event=first_event)]
    if report.findings:
        lines.append(Text(""))
    lines += [Text(f"  {checked(report)}", "dim"), liveness_line(report)]
    return lines + exercised_lines(report.coverage, [report.profile], every=coverage)


def liveness_line(report: Report) -> Text:
    """How many passes of the scheduler were seen, and for how many anything may stand still."""
    patience = report.patience
    bounds = f"a turn that can run may stand still for {patience.turns}, a close for {patience.closes}"
    bounds += f"; a turn may be retracted {patience.retracts} times without a token"
    bounds += f", and launched {patience.aborted} times after its abort was asked for"
    return _line("liveness", f"{report.passes} passes of the scheduler; {bounds}")


def replay_command(*paths: Path | str, strict: bool = False, profile: str | None = None) -> str:
    """What a user types to judge these traces by these rules."""
    options = [*(["--strict"] if strict else []), *(["--profile", profile] if profile is not None else [])]
    return shlex.join(["kvproof", "replay", *map(str, paths), *options])


def verdict_line(report: Report) -> Text:
    by = f"  by the rules of {report.profile}" if report.profile is not None else ""
    return Text(f"{report.verdict.upper()}  ", STYLES[report.verdict]) + Text(f"{report.path}{by}")


def weaker(allowed: Sequence[str], gaps: Sequence[str]) -> list[str]:
    """What weakens a verdict, in sentences: deviations that it allows, and what was not checked."""
    known = [f"allows known deviations: {', '.join(allowed)}"] if allowed else []
    return [*known, *(f"not checked: {gap}" for gap in gaps)]


def weaker_lines(report: Report) -> list[Text]:
    followed = [
        f"known deviation {known_in(fault_id, report.profile)}, {times} times: {FAULTS[fault_id].summary}"
        for fault_id, times in sorted(report.followed.items())
    ]
    return [Text(f"  {line}", "yellow") for line in (*followed, *weaker(report.allowed, report.gaps))]


def reason_lines(report: Report, *, first_event: int = 0) -> list[Text]:
    """Why it is no pass, what was followed, and the findings."""
    lines = []
    if report.why:
        lines.append(Text(f"  {report.why}", "yellow"))
    if report.hint and report.verdict != CONFORMS:
        lines.append(Text(f"  {report.hint}", "yellow"))
    shown = [finding for finding in report.findings if finding.event.seq >= first_event]
    if before := len(report.findings) - len(shown):
        first = report.findings[0].event.seq
        lines.append(
            Text(f"  {before} findings before event {first_event}, the first at event {first}, not shown", "red")
        )
    if report.is_over and report.findings[-1].event.seq < first_event:
        lines.append(Text(f"  the replay ended there: event {first_event} was not reached", "red"))
    for finding, times in _grouped(shown):
        lines.append(Text(""))
        lines += finding_lines(finding, times)
    return lines


def scheduling(c: Config) -> list[str]:
    """What sets a configuration apart from the plainest one."""
    return [
        *(["overlap"] if c.overlap else []),
        *([f"speculation {c.speculation}, {c.drafts} drafts"] if c.speculation else []),
        *([f"window {c.window}"] if c.window else []),
        *([] if c.tree else ["chunk cache"]),
    ]


def checked(report: Report) -> str:
    c = report.config
    window = [f"{c.window_pages} window pages"] if c.window_pages else []
    facts = [f"page size {c.page_size}", f"{c.pool_pages} pages", *window, *scheduling(c)]
    return (
        f"{report.events} events, {report.pages_moved} page moves, {', '.join(facts)}, "
        f"{len(report.actions)} kinds of action checked"
    )


def _grouped(findings: list[Finding]) -> list[tuple[Finding, int]]:
    """The first finding of each kind (rule and explanation), with how often it was found."""
    kinds: Counter[tuple[str, tuple[str, ...]]] = Counter()
    first: dict[tuple[str, tuple[str, ...]], Finding] = {}
    for finding in findings:
        kind = (finding.action, tuple(f.id for f in finding.explained_by))
        kinds[kind] += 1
        first.setdefault(kind, finding)
    return [(finding, kinds[kind]) for kind, finding in first.items()]


def as_json(report: Report) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "profile": report.profile,
        "verdict": report.verdict,
        "why": report.why,
        "events": report.events,
        "page_moves": report.pages_moved,
        "actions": dict(sorted(report.actions.items())),
        "coverage": coverage_json(report.coverage, report.profile),
        "allowed_deviations": list(report.allowed),
        "known_deviations": dict(sorted(report.followed.items())),
        "gaps": list(report.gaps),
        "findings": [finding_json(f) for f in report.findings],
    }
