"""What is reported of one violation, in parts: the same in the terminal and on the page."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.text import Text

from kvproof.conformance.compiled.choose import is_large
from kvproof.conformance.fuzz.finding_files import SCHEDULE, TEST
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.targets import to_play_again
from kvproof.conformance.replay.finding_words import (
    MAX_PAGE_LINES,
    NO_FAULT,
    fault_in_words,
    in_one_sentence,
    invariant_in_words,
    page_lines,
)
from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.replay.timeline import pages_in_words
from kvproof.conformance.replay.verdict import VIOLATES, Finding, Report
from kvproof.conformance.replay.wrong_pages import WrongPage
from kvproof.conformance.report.explain.picture import pictures
from kvproof.conformance.report.explain.story import Lengths, Subject
from kvproof.conformance.report.needs import to_type
from kvproof.conformance.report.show_replay import replay_command
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.model.integers import Integers
from kvproof.spec.state import FIELDS
from kvproof.spec.trace import Event, Header

EVENTS_BEFORE = 6
FROM_THE_MODEL = "kvproof-model"


class Wrong(str):
    """A word that is marked: the rule says otherwise."""


class Value(NamedTuple):
    """A value of the ledger around the bad event, in words. `seen`: marked where the rule says otherwise."""

    name: str
    before: str
    rule: str
    seen: str | Wrong


def values_of(finding: Finding) -> list[Value]:
    """What the event changed or should have, lengths first."""
    different = {d.name: d for d in finding.differences}
    seen = finding.event.after.model_dump(exclude_none=True)
    order = {f.name: (f.metadata["sort"] != "length", n) for n, f in enumerate(FIELDS)}
    names = sorted(dict.fromkeys([*seen, *different]), key=lambda name: order.get(name, (True, len(order))))
    return [v for v in (_value(name, finding, different.get(name)) for name in names) if v is not None]


def _value(name: str, finding: Finding, difference: Difference | None) -> Value | None:
    before = getattr(finding.before, name, None)
    if difference is not None:
        was = difference.before if difference.before is not None else before
        return Value(name, value(name, was), value(name, difference.expected), Wrong(value(name, difference.seen)))
    seen = getattr(finding.event.after, name)
    if seen == before:
        return None
    return Value(name, value(name, before), value(name, seen), value(name, seen))


def lengths_around(finding: Finding, page_size: int) -> list[tuple[str, Lengths]]:
    """The row before the event, after it by the rule, and after it as it was seen; empty where the event is of no row."""
    if finding.before is None:
        return []
    before = Lengths.of(Integers(page_size, 1), finding.before)
    seen = before.seen_in(finding.event)
    expected = finding.event.after.model_copy(
        update={d.name: d.expected for d in finding.differences if d.name in type(finding.event.after).model_fields}
    )
    by_rule = before.seen_in(finding.event.model_copy(update={"after": expected}))
    rows = [("before", before), ("by the rule", by_rule), ("as seen", seen)]
    return rows if by_rule != seen else [rows[0], ("after", seen)]


class Fact(NamedTuple):
    """One line of what is said of a finding: `name` stands out, `text` follows it."""

    label: str
    text: str
    name: str = ""
    is_bad: bool = False


class Moved(NamedTuple):
    """Pages that an event moved wrongly: `owner` before it, `became` after it, and the owner by the rule."""

    pages: str
    owner: str
    became: str
    rule: str
    by: str
    """The action."""

    @property
    def fact(self) -> Fact:
        text = f": {self.owner} had it, {self.became} has it now; by the rule: {self.rule}"
        return Fact("page", text, self.pages, is_bad=True)


@dataclass(frozen=True)
class Account:
    """What is reported of the first bad event."""

    sentence: str
    moved: Sequence[Moved]
    facts: Sequence[Fact]
    values: Sequence[Value]
    picture: Sequence[Text]
    """The row around the event, and last the legend; empty where the event is of no row."""
    before: Sequence[str]
    """What led to it, and last the event itself."""
    notes: Sequence[str]


def account_of(finding: Finding, report: Report, subject: Subject, header: Header) -> Account:
    before, page_size, notes = events_before(finding), header.config.page_size, []
    if left := len(report.findings) - 1:
        notes.append(f"and {left} more findings behind it: kvproof replay shows them")
    if _is_shortest(subject, header):
        notes.append("this trace is as short as they get that show it")
    return Account(
        in_one_sentence(finding),
        [*_moved_in(finding)],
        [*_facts_of(finding)],
        values_of(finding),
        pictures(lengths_around(finding, page_size), page_size),
        [*before, f"event {finding.event.seq} is the bad one"] if before else [],
        notes,
    )


def _facts_of(finding: Finding) -> Iterator[Fact]:
    """Where it is, whose, which rule, what it breaks, the fault that does the same, and what it comes from."""
    e = finding.event
    turn = f", turn {e.turn}" if e.turn else ""
    row = f", row {e.row} of req_to_token" if e.row is not None else ""
    yield Fact("where", f"{_named(e)}, {finding.path.name}:{finding.line}")
    yield Fact("who", f"{finding.ledger}{turn}{row}")
    yield Fact("action", f": {finding.rule}", finding.action)
    for invariant, sentence in finding.invariants.items():
        yield Fact("breaks", invariant_in_words(invariant, sentence), is_bad=True)
    for fault in finding.explained_by:
        yield Fact("fault", fault_in_words(fault, finding.profile))
        yield Fact("", f"with {fault.id} on, the model accepts this event")
    if finding.cause:
        yield Fact("cause", finding.cause)
    elif not finding.explained_by:
        yield Fact("fault", f"{NO_FAULT} does this: it is new, or another rule than the model's")
    if not finding.wrong:
        yield from (Fact("page", line) for line in page_lines(finding.pages))


def _moved_in(finding: Finding) -> Iterator[Moved]:
    """Pages that differ in nothing but their id stand together."""
    alike: dict[tuple[str, str, str], list[WrongPage]] = {}
    for one in finding.wrong:
        alike.setdefault((one.owner, one.became, one.rule), []).append(one)
    for (owner, became, rule), pages in alike.items():
        named = ", ".join(str(one.page) for one in pages[:MAX_PAGE_LINES])
        left = len(pages) - MAX_PAGE_LINES
        named += f" and {left} more" if left > 0 else ""
        yield Moved(named, owner, became, rule, finding.action)


def events_before(finding: Finding, most: int = EVENTS_BEFORE) -> list[str]:
    """The last events of the same session or request, and those that moved a wrong page; of a huge trace none are looked for."""
    if is_large(finding.path):
        return []
    wrong = {page.page for page in finding.wrong}
    kept: deque[Event] = deque(maxlen=most)
    for event in read_trace(finding.path).events_from(0):
        if event.seq >= finding.event.seq:
            break
        if _is_about(event, finding, wrong):
            kept.append(event)
    return [_in_short(event) for event in kept]


def _named(event: Event) -> str:
    return f"event {event.seq}" + (f", step {event.step}" if event.step is not None else "")


def _in_short(event: Event) -> str:
    """Which event, whose, the pages that moved, and the lengths after it."""
    moved = (("takes", event.alloc), ("frees", event.free), ("shares", event.shared))
    moves = "; ".join(f"{word} {pages_in_words(pages)}" for word, pages in moved if pages)
    seen = Lengths().seen_in(event)
    whose = event.turn or event.session or ""
    parts = (_named(event), f"{event.action:<7}", whose, str(seen) if seen.whose else "", moves)
    return "  ".join(filter(None, parts))


def _is_about(event: Event, finding: Finding, wrong: set[int]) -> bool:
    mine = finding.event
    moved = wrong and not wrong.isdisjoint((*event.alloc, *event.free, *(event.shared or ())))
    is_of_session = mine.session is not None and event.session == mine.session
    return bool(moved or is_of_session or (mine.turn is not None and event.turn == mine.turn))


class Command(NamedTuple):
    """Something to do next, as it is typed."""

    what: str
    line: str


def commands_of(subject: Subject, report: Report, header: Header) -> Iterator[Command]:
    """How to see it again, make it small, and look at the fault."""
    trace = shlex.quote(str(subject.path))
    if subject.finding is not None:
        target = Schedule.load(subject.finding / SCHEDULE).target
        yield Command("run it again", to_type(to_play_again(target, subject.finding), "hypothesis"))
        yield Command("as a test", f"pytest {shlex.quote(str(subject.finding / TEST))}")
    again = replay_command(subject.path, strict=subject.strict, profile=subject.profile)
    yield Command("judge it again", again)
    if report.verdict != VIOLATES:
        return
    if header.producer.name != FROM_THE_MODEL and subject.finding is None:
        by = f" --profile {subject.profile}" if subject.profile is not None else ""
        yield Command("make it small", f"kvproof shrink {trace}{by}")
    for fault in dict.fromkeys(fault.id for found in report.findings for fault in found.explained_by):
        yield Command("what the fault is", to_type(f"kvproof explain {fault}", "z3"))
        yield Command("prove that it breaks", to_type(f"kvproof prove --fault {fault}", "z3"))


def _is_shortest(subject: Subject, header: Header) -> bool:
    """A counterexample of the model, and a finding of the fuzzer, are as small as they get."""
    return header.producer.name == FROM_THE_MODEL or subject.finding is not None
