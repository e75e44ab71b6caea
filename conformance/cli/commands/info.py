"""`kvproof info`: what a trace contains, without a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli.progress_bar import reading_pace
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.terminal import Progress, say
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

LOOK_EVENTS = 1000


def info(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces (.jsonl, .jsonl.gz or .kvtrace).")],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="One line for each trace.")] = False,
) -> None:
    """Summarise traces: producer, configuration, contents, and whether they are complete.

    Exits with 3 if a trace is incomplete.

    Example: [bold]kvproof info out/retract.jsonl[/bold]
    """
    all_complete, told = True, []
    for path in traces:
        trace = read_trace(path)
        with Progress(f"reading {path}") as progress:
            totals = count(trace, reading_pace(progress, trace))
        all_complete = all_complete and trace.end is not None and trace.end.dropped == 0
        told.append(_for_machines(trace, totals))
        for line in [_one_line(trace, totals)] if quiet else _lines(trace, totals):
            say(line)
    answer_with(traces=told)
    if not all_complete:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


@dataclass
class Totals:
    """Sums over the events of one trace."""

    actions: Counter[str] = field(default_factory=Counter)
    sessions: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    pages: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return self.actions.total()

    def add(self, event: Event) -> None:
        self.actions[event.action] += 1
        if event.session is not None:
            self.sessions.add(event.session)
        if event.turn is not None:
            self.turns.add(event.turn)
        self.pages.update(alloc=len(event.alloc), free=len(event.free), shared=len(event.shared or ()))
        for name, value in event.after:
            if name.endswith("_len") and value is not None:
                least, most = self.lengths.get(name, (value, value))
                self.lengths[name] = (min(least, value), max(most, value))


def count(trace: TraceReader, pace: Callable[[int], None] = lambda _: None) -> Totals:
    totals = Totals()
    for number, (_, record) in enumerate(trace):
        if isinstance(record, Event):
            totals.add(record)
            if number % LOOK_EVENTS == 0:
                pace(number)
    return totals


def _state(trace: TraceReader) -> str:
    """How the trace ends, as a sentence."""
    if trace.end is None:
        return f"incomplete: {trace.broken_off or 'no end record; the recorder crashed or still runs'}"
    if trace.end.dropped:
        return f"incomplete: the recorder dropped {trace.end.dropped} events"
    return f"complete ({trace.end.reason})"


def _in_words(value: Any) -> str:
    """A free-form setting of the producer on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={_in_words(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_in_words, value)) or "none"
    return str(value)


def _one_line(trace: TraceReader, totals: Totals) -> str:
    return f"{trace.path}: {totals.events} events, page size {trace.header.config.page_size}, {_state(trace)}"


def _for_machines(trace: TraceReader, totals: Totals) -> dict[str, Any]:
    return {
        "path": str(trace.path),
        "header": trace.header.model_dump(mode="json"),
        "events": totals.events,
        "actions": dict(totals.actions),
        "sessions": len(totals.sessions),
        "turns": len(totals.turns),
        "pages": dict(totals.pages),
        "lengths": totals.lengths,
        "dropped": trace.end and trace.end.dropped,
        "state": _state(trace),
    }


def _lines(trace: TraceReader, totals: Totals) -> list[str]:
    header, config = trace.header, trace.header.config
    chunk = config.chunked_prefill_size
    pages = totals.pages
    rows = [
        ("producer", f"{header.producer.name} {header.producer.version}, driving {header.producer.target}"),
        ("format", f"{header.format}, spec {header.spec}"),
        ("scenario", header.scenario or "none named"),
        ("page size", f"{config.page_size} tokens"),
        ("pool", f"{config.pool_pages} pages, {config.rows} rows of {config.row_width} tokens"),
        ("chunked prefill", f"{chunk} tokens" if chunk is not None else "off"),
        *((name, _in_words(value)) for name, value in sorted(header.extra.items()) if value not in ({}, [])),
        *(("cannot see", gap) for gap in header.gaps),
        ("known deviations", ", ".join(header.known_deviations) or "none"),
        ("sessions", str(len(totals.sessions))),
        ("turns", str(len(totals.turns))),
        ("events", str(totals.events)),
        *((f"  {action}", str(number)) for action, number in totals.actions.most_common()),
        ("pages moved", f"{pages['alloc']} taken, {pages['free']} freed, {pages['shared']} shared"),
        *((name, f"{least} to {most} tokens") for name, (least, most) in sorted(totals.lengths.items())),
        ("state", _state(trace)),
    ]
    width = max(len(name) for name, _ in rows)
    return [str(trace.path), *(f"  {name:<{width}}  {value}" for name, value in rows)]
