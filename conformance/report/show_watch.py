"""What `kvproof watch` shows: a live view on a terminal, or plain lines for a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kvproof.conformance.replay.coverage import WITHOUT_RULE
from kvproof.conformance.replay.finding_words import finding_lines
from kvproof.conformance.replay.owner_counts import Pool
from kvproof.conformance.replay.replay import VIOLATES, Finding
from kvproof.conformance.report.show_replay import STYLES, scheduling
from kvproof.conformance.report.show_replay import as_json as report_json
from kvproof.conformance.report.terminal import out
from kvproof.conformance.watch.status import ENDED, FOLLOWING, IDLE, UNJUDGED, WAITING, Status
from kvproof.conformance.watch.watch import Outcome
from kvproof.spec.actions import ACTIONS
from kvproof.spec.trace import Header

LABELS = 11
"""Columns left of the bar, and free behind it."""
LINE_SECONDS = 10.0
"""Between two lines of a log."""
KINDS = (*ACTIONS, *WITHOUT_RULE)
"""All kinds of action that a replay counts."""

OWNERS: dict[str, tuple[str, str, str]] = {
    "running": ("running", "█", "magenta"),
    "slots": ("slots", "▓", "blue"),
    "tree": ("tree", "▒", "green"),
    "taken": ("taken", "█", "yellow"),
    "free": ("free", "·", "dim"),
}
"""Of each kind of owner: its name, its mark in the bar, its colour."""

HOW: dict[str, str] = {
    WAITING: "waiting for the trace",
    FOLLOWING: "so far",
    IDLE: "complete as it stands; the server is idle",
    UNJUDGED: "what came after the violation is counted, not judged",
    ENDED: "at its end",
}


class LiveView:
    """One screen that is drawn again and again; violations and notes scroll by above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else out()
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text, "dim"), soft_wrap=True)

    def finding(self, finding: Finding, times: int) -> None:
        for line in lines_of(finding, times):
            self._console.print(line, soft_wrap=True)

    def status(self, status: Status) -> None:
        self._live.update(screen(status, self._console.width))


class PlainLog:
    """Lines for a log: what happens at once, and where the watch stands every ten seconds and when that changes.

    Quiet: what happens only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._next = 0.0
        self._phase = WAITING

    def __enter__(self) -> PlainLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        out().print(Text(text), soft_wrap=True)

    def finding(self, finding: Finding, times: int) -> None:
        for line in lines_of(finding, times):
            out().print(line, soft_wrap=True)

    def status(self, status: Status) -> None:
        if (
            self._quiet
            or status.phase in (WAITING, ENDED)
            or (status.seconds < self._next and status.phase == self._phase)
        ):
            return
        self._next, self._phase = status.seconds + LINE_SECONDS, status.phase
        self.say(line_of(status))


def lines_of(finding: Finding, times: int) -> Iterable[Text]:
    """The first of its kind in full; of the others one line at each power of ten: a wrong check may be found for days."""
    if times == 1:
        yield Text("VIOLATION", STYLES[VIOLATES])
        yield from finding_lines(finding)
    elif times == 10 ** (len(str(times)) - 1):
        again = f"VIOLATION {finding.action} at event {finding.event.seq}: the {times:,}th like the one above"
        yield Text(again, STYLES[VIOLATES])


def line_of(status: Status) -> str:
    """Where the watch stands, in one line."""
    pools = [
        f"{'pages' if name == 'full' else 'window pages'}: " + " ".join(f"{o} {pool[o]}" for o in OWNERS if o in pool)
        for name, pool in status.pools.items()
    ]
    parts = [
        f"{status.seconds:.0f} s",
        f"{status.verdict or 'no verdict yet'}, {HOW[status.phase]}",
        f"{status.events} events, {status.rate:.0f}/s",
        f"lag {lag(status)}",
        *pools,
        load(status),
        f"{seen(status)} of {len(KINDS)} kinds of action",
    ]
    return " | ".join(parts)


def screen(status: Status, width: int) -> Group:
    """The view, `width` columns wide."""
    head = Text.assemble(("kvproof watch  ", "bold"), status.path, overflow="ellipsis", no_wrap=True)
    if status.header is None:
        return Group(head, Text(HOW[WAITING], "yellow"))
    rows = Table.grid(padding=(0, 2), expand=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(ratio=1)
    room = max(20, width - LABELS)
    rows.add_row("verdict", verdict(status))
    for name, pool in status.pools.items():
        rows.add_row("pages" if name == "full" else "window", bar(pool, room))
        rows.add_row("", legend(pool))
    rows.add_row("load", load(status))
    rows.add_row("rate", f"{status.rate:,.0f} events/s, checker {'compiled' if status.compiled else 'interpreted'}")
    rows.add_row("lag", lag(status))
    rows.add_row("actions", coverage(status))
    return Group(head, Text(configuration(status.header), "dim", overflow="ellipsis", no_wrap=True), rows)


def configuration(header: Header) -> str:
    c = header.config
    pages = [
        f"{c.pool_pages:,} pages of {c.page_size}",
        *([f"{c.window_pages:,} window pages"] if c.window_pages else []),
    ]
    return ", ".join([header.producer.target, *pages, f"{c.rows} rows", *scheduling(c)])


def verdict(status: Status) -> Text:
    if not status.verdict:
        return Text("no event yet")
    counted = f"{status.events:,} events"
    text = Text(f"{status.verdict.upper()}  ", STYLES[status.verdict])
    if not status.violations:
        text.append(f"{HOW[status.phase]}: {counted}")
    else:
        text.append(f"{status.violations:,} in {counted}; the first: {status.first_violation}")
        if status.unjudged:
            text.append(f"\n{status.unjudged:,} events came after it and are counted, not judged", "yellow")
    for fault, times in sorted(status.followed.items()):
        text.append(f"\nknown deviation {fault}, {times:,} times", "yellow")
    return text


def bar(pool: Pool, width: int) -> Text:
    """Pages by owner. Whoever has a page at all has a cell of the bar at least."""
    shares = cells({owner: pool[owner] for owner in OWNERS if pool.get(owner)}, width)
    text = Text(no_wrap=True)
    for owner, count in shares.items():
        _, mark, style = OWNERS[owner]
        text.append(mark * count, style)
    return text


def cells(pages: dict[str, int], width: int) -> dict[str, int]:
    """So many cells for each, `width` in all, one at least."""
    whole = sum(pages.values())
    shares = {owner: max(1, count * width // whole) for owner, count in pages.items()}
    while shares and sum(shares.values()) != width:
        largest = max(shares, key=lambda owner: pages[owner])
        shares[largest] += width - sum(shares.values())
    return shares


def legend(pool: Pool) -> Columns:
    """Who has how many pages. No entry is broken over two lines."""
    whole = sum(pool.values())
    entries = [
        Text.assemble((mark, style), f" {name} {pool[owner]:,} {100 * pool[owner] / whole:.0f}%", no_wrap=True)
        for owner, (name, mark, style) in OWNERS.items()
        if owner in pool
    ]
    return Columns(entries, padding=(0, 2))


def load(status: Status) -> str:
    it = status.load
    return f"{it.sessions} sessions, {it.running} running, {it.prefilling} in prefill, {it.waiting} waiting"


def lag(status: Status) -> str:
    held = f", {status.held} bytes of a record that is not whole" if status.held else ""
    return f"{size(status.lag_bytes)}, {status.lag_seconds:.1f} s{held}"


def size(count: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def seen(status: Status) -> int:
    return sum(status.actions[kind] > 0 for kind in KINDS)


def coverage(status: Status) -> Text:
    text = Text(f"{seen(status)} of {len(KINDS)} kinds seen: ")
    counted: list[tuple[str, Any]] = [(kind, status.actions[kind]) for kind in KINDS if status.actions[kind]]
    text.append(", ".join(f"{kind} {times:,}" for kind, times in counted), "dim")
    return text


def as_json(outcome: Outcome) -> dict[str, Any]:
    """How a watch ended, for machines: the report of the trace that was followed last, and what was counted over all."""
    return {
        **({} if outcome.report is None else report_json(outcome.report)),
        "verdict": outcome.verdict,
        "violations": outcome.violations,
        "unjudged": outcome.unjudged,
        "restarts": outcome.restarts,
        "interrupted": outcome.interrupted,
    }
