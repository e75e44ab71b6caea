"""A report for the terminal: what broke, where, why, the row before and after, what led to it, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from kvproof.conformance.replay.verdict import Report
from kvproof.conformance.report.explain.account import Account, Command, Value, Wrong, account_of, commands_of
from kvproof.conformance.report.explain.story import Subject
from kvproof.conformance.report.show_replay import checked, reason_lines, verdict_line, weaker_lines
from kvproof.spec.trace import Header

LABEL = 10
WIDEST_VALUE = 40


def report_lines(subject: Subject, report: Report, header: Header, html: Path | None) -> Iterator[Text]:
    """The whole report. `html`: the page that was written of it."""
    yield verdict_line(report)
    yield from weaker_lines(report)
    yield Text(f"  {checked(report)}", "dim")
    if report.first is None:
        yield from reason_lines(report)
    else:
        yield Text("")
        yield from _account_lines(account_of(report.first, report, subject, header))
    yield Text("")
    yield from (_command_line(command) for command in commands_of(subject, report, header))
    page = f"kvproof explain {subject.given} --html report.html"
    yield _command_line(Command("as a page", page) if html is None else Command("the page", str(html)))


def _account_lines(account: Account) -> Iterator[Text]:
    """What is reported of the first bad event."""
    yield Text(account.sentence, "bold red")
    for fact in (*account.facts, *(moved.fact for moved in account.moved)):
        name = Text(fact.name, "bold red" if fact.is_bad else "bold")
        text = Text(fact.text, "not bold not red" if fact.name else "")
        yield Text(f"  {fact.label:<{LABEL}}", "dim") + name + text
    yield from _values(account.values)
    if account.picture:
        yield Text("")
        yield from (Text("  ") + line for line in account.picture)
    if account.before:
        *before, bad = account.before
        yield Text("")
        yield Text("what led to it", "bold")
        yield from (Text(f"  {line}") for line in before)
        yield Text(f"  {bad}", "red")
    if account.notes:
        yield Text("")
        yield from (Text(f"  {note}", "dim") for note in account.notes)


def _command_line(command: Command) -> Text:
    return Text(f"  {command.what + ':':<22}", "dim") + Text(command.line)


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
