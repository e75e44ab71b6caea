"""A report for the terminal: what broke, where, why, the row before and after, what led to it, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from kvproof.conformance.replay.finding_words import MAX_PAGE_LINES, page_lines
from kvproof.conformance.replay.verdict import VIOLATES, Finding, Report
from kvproof.conformance.replay.wrong_pages import WrongPage
from kvproof.conformance.report.explain.account import (
    Command,
    Value,
    Wrong,
    commands_of,
    events_before,
    facts_of,
    in_one_sentence,
    is_shortest,
    lengths_around,
    values_of,
)
from kvproof.conformance.report.explain.picture import pictures
from kvproof.conformance.report.explain.subject import Subject
from kvproof.conformance.report.show_replay import checked, reason_lines, verdict_line
from kvproof.spec.trace import Header

LABEL = 10
WIDEST_VALUE = 40


def report_lines(subject: Subject, report: Report, header: Header, html: Path | None) -> Iterator[Text]:
    """The whole report. `html`: the page that was written of it."""
    yield verdict_line(report)
    yield Text(f"  {checked(report)}", "dim")
    if report.first is None:
        yield from reason_lines(report)
    else:
        yield Text("")
        yield from finding_lines(report.first, header.config.page_size)
        if left := len(report.findings) - 1:
            yield Text("")
            yield Text(f"  and {left} more findings behind it: kvproof replay shows them", "dim")
    yield Text("")
    yield from _next(subject, report, header, html)


def finding_lines(finding: Finding, page_size: int) -> Iterator[Text]:
    """The first bad event."""
    yield Text(in_one_sentence(finding), "bold red")
    for fact in facts_of(finding):
        name = Text(fact.name, "bold red" if fact.is_bad else "bold")
        yield _line(fact.label, name + Text(fact.text, "not bold not red" if fact.name else ""))
    yield from _pages(finding)
    yield from _values(values_of(finding))
    if drawn := pictures(lengths_around(finding, page_size), page_size):
        yield Text("")
        yield from (Text("  ") + line for line in drawn)
    if before := events_before(finding):
        yield Text("")
        yield Text("what led to it", "bold")
        yield from (Text(f"  {line}") for line in before)
        yield Text(f"  event {finding.event.seq} is the bad one", "red")


def _line(label: str, text: Text) -> Text:
    return Text(f"  {label:<{LABEL}}", "dim") + text


def _pages(finding: Finding) -> Iterator[Text]:
    """The two owners of each page that moved wrongly; pages that differ in nothing but their id stand in one line."""
    if not finding.wrong:
        yield from (_line("page", Text(line)) for line in page_lines(finding.pages))
        return
    for pages, one in _alike(finding.wrong):
        yield _line(
            "page",
            Text(pages, "bold")
            + Text(f": {one.owner} had it, ", "not bold")
            + Text(f"{one.became} has it now", "red")
            + Text(f"; by the rule: {one.rule}", "not bold"),
        )


def _alike(wrong: Sequence[WrongPage]) -> Iterator[tuple[str, WrongPage]]:
    groups: dict[tuple[str, str, str], list[WrongPage]] = {}
    for one in wrong:
        groups.setdefault((one.owner, one.became, one.rule), []).append(one)
    for group in groups.values():
        named = [str(one.page) for one in group[:MAX_PAGE_LINES]]
        left = len(group) - len(named)
        yield ", ".join(named) + (f" and {left} more" if left else ""), group[0]


def _values(values: Sequence[Value]) -> Iterator[Text]:
    if not values:
        return
    head = ("", "before", "by the rule", "as seen")
    rows = [(v.name, *map(_short, v[1:])) for v in values]
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    yield Text("")
    yield Text("  " + "  ".join(map(str.ljust, head, wide)), "dim")
    for *cells, seen in rows:
        line = Text("  " + "".join(f"{cell:<{w}}  " for cell, w in zip(cells, wide, strict=False)))
        yield line + (Text(f"{seen} ✗", "bold red") if isinstance(seen, Wrong) else Text(seen))


def _short(text: str) -> str:
    return text if len(text) <= WIDEST_VALUE else type(text)(f"{text[: WIDEST_VALUE - 1]}…")


def _next(subject: Subject, report: Report, header: Header, html: Path | None) -> Iterator[Text]:
    if report.verdict == VIOLATES and is_shortest(subject, header):
        yield Text("  this trace is as short as they get that show it", "dim")
    given = Command("as a page", f"kvproof explain {subject.given} --html report.html")
    for command in (*commands_of(subject, report, header), *([] if html else [given])):
        yield Text(f"  {command.what + ':':<22}", "dim") + Text(command.line)
    if html is not None:
        yield Text(f"  {'the page:':<22}", "dim") + Text(str(html))
