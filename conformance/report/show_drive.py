"""A drive's verdict for people and machines: the same, or the first event where the implementation diverges."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.text import Text

from kvproof.conformance.drive.drive import SAME, Divergence, DriveReport
from kvproof.conformance.errors import at
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Event, Header, Producer


def verdict_lines(report: DriveReport) -> list[Text]:
    who = f"the reference with {', '.join(report.faults)}" if report.faults else "the reference"
    if report.first is None:
        lines = [Text("SAME  ", "bold green") + Text(f"{report.path}: {who} did all {report.events} events as written")]
        return lines + [Text(f"  the trace is incomplete: {why}", "yellow") for why in [report.why_incomplete] if why]
    return [Text("DIVERGES  ", "bold red") + Text(f"{report.path}: {who}"), *_divergence_lines(report, report.first)]


def _divergence_lines(report: DriveReport, first: Divergence) -> list[Text]:
    event = first.expected
    if event is None:
        seen = _named(first.seen)
        return [Text(f"  all {report.events} events as written, and then on its own {seen}")]
    where = f"{at(report.path, first.line)}: event {event.seq}: "
    lines = [
        Text(f"  the first {report.events - 1} events as written", "dim"),
        Text(f"  {where}{_named(event)}", "bold"),
    ]
    if first.why:
        lines.append(Text(f"  {first.why}", "red"))
    for d in first.differences:
        seen_value = Text(value(d.name, d.seen), "bold red")
        lines.append(Text(f"  {d.name}: expected {value(d.name, d.expected)}, seen ") + seen_value)
    return lines


def _named(event: Event | None) -> str:
    if event is None:
        return "nothing"
    of = ", ".join(f"{kind} {name}" for kind, name in (("session", event.session), ("turn", event.turn)) if name)
    return event.action + (f" ({of})" if of else "")


def as_json(report: DriveReport) -> dict[str, Any]:
    first = report.first
    return {
        "path": str(report.path),
        "target": "reference",
        "faults": list(report.faults),
        "verdict": report.verdict,
        "events": report.events,
        "why_incomplete": report.why_incomplete,
        "first": first
        and {
            "line": first.line,
            "expected": first.expected and first.expected.model_dump(mode="json", exclude_defaults=True),
            "seen": first.seen and first.seen.model_dump(mode="json", exclude_defaults=True),
            "why": first.why,
            "differences": [{"name": d.name, "expected": d.expected, "seen": d.seen} for d in first.differences],
        },
    }


def save_seen(report: DriveReport, path: Path) -> None:
    """The implementation's own trace, up to where it was driven."""
    header = Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-reference", version=version("kvproof"), target="reference"),
        config=read_trace(report.path).header.config,
        extra={"driven_along": report.path.name, "faults": list(report.faults)},
    )
    reason = "finished" if report.verdict == SAME else "driven up to the first event where it diverges"
    with write_trace(path, header) as writer:
        for event in report.seen:
            writer.event(**{name: getattr(event, name) for name in event.model_fields_set if name != "seq"})
        writer.close(reason)
