"""`kvproof list`: the tables of names that other commands take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from kvproof.conformance.adapters.scenarios import TARGETS, scenarios_of
from kvproof.conformance.cli import completions
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.terminal import note, print_table, say
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES
from kvproof.spec.profiles import PROFILES


@dataclass(frozen=True)
class Listing:
    columns: tuple[str, ...]
    rows: Callable[[], Iterable[tuple[str, ...]]]


def _faults() -> Iterable[tuple[str, ...]]:
    for fault in FAULTS.values():
        yield fault.id, fault.kind, fault.action, fault.summary, fault.needs, " ".join(fault.breaks), fault.source


def _invariants() -> Iterable[tuple[str, ...]]:
    return ((i.id, m.name, i.statement, i.source) for m in MACHINES for i in m.invariants.values())


def _actions() -> Iterable[tuple[str, ...]]:
    return ((a.name, m.name, a.event, a.summary) for m in MACHINES for a in m.actions.values())


def _profiles() -> Iterable[tuple[str, ...]]:
    return ((p.name, " ".join(p.rules), " ".join(p.deviations), p.summary) for p in PROFILES.values())


def _scenarios() -> Iterable[tuple[str, ...]]:
    """The scenarios of every target that is installed; a note on stderr for each that is not."""
    for target in TARGETS:
        try:
            found = scenarios_of(target)
        except UserError as error:
            note(f"scenarios of {target} left out: {error.message}")
            continue
        yield from ((name, target, summary) for name, summary in found.items())


LISTINGS: dict[str, Listing] = {
    "faults": Listing(("id", "kind", "action", "what the faulty rule does", "needs", "breaks", "source"), _faults),
    "invariants": Listing(("id", "machine", "statement", "source"), _invariants),
    "actions": Listing(("name", "machine", "event", "what it does"), _actions),
    "profiles": Listing(("name", "rules of its own", "deviations", "what it is"), _profiles),
    "scenarios": Listing(("name", "target", "what it drives"), _scenarios),
}


def list_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help=f"One of: {', '.join(LISTINGS)}.",
            autocompletion=completions.of(LISTINGS),
        ),
    ],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Names only, one a line.")] = False,
) -> None:
    """List the faults, invariants, actions, profiles or scenarios that kvproof knows.

    A table on a terminal, tab-separated lines in a pipe.

    Example: [bold]kvproof list faults[/bold]
    """
    if what not in LISTINGS:
        raise unknown("list", what, LISTINGS)
    columns, rows = LISTINGS[what].columns, list(LISTINGS[what].rows())
    answer_with(**{what: [dict(zip(columns, row, strict=True)) for row in rows]})
    if quiet:
        for name in dict.fromkeys(row[0] for row in rows):
            say(name)
    else:
        print_table(columns, rows)
