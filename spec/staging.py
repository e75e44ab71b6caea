"""Two small machines: an admission that stages resources and may fail half-way, and a free that is carried out later."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions.action import Action, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.effects import Require
from kvproof.spec.invariants import Invariant
from kvproof.spec.state import described


@dataclass(frozen=True)
class Admission:
    """What one admission has staged: a tree lock, then a row, then pages. `admitted`: it is a running request's now."""

    staging: Flag = described("flag", "admission", "an admission is under way")
    locks: Count = described("count", "admission", "tree locks that it holds")
    rows: Count = described("count", "admission", "rows that it took")
    pages: Count = described("count", "admission", "pages that it took")
    held: Count = described(
        "count", "ghost", "locks, rows and pages that were handed to it and not returned or admitted"
    )

    def but(self, **changes: Any) -> Admission:
        return dataclasses.replace(self, **changes)


def idle(d: Domain) -> Admission:
    return Admission(d.false, 0, 0, 0, 0)


def _stage(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """The matched prefix is locked first, so that no eviction takes it while pages are looked for."""
    return Step(s.but(staging=d.true, locks=s.locks + 1, held=s.held + 1))


def _stage_row(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    return Step(s.but(rows=s.rows + 1, held=s.held + 1), (Guard("it has no row yet", s.rows == 0),))


def _stage_pages(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    guards = (Guard("pages are taken for a row", s.rows == 1), Guard("some pages", 1 <= p.size))
    return Step(s.but(pages=s.pages + p.size, held=s.held + p.size), guards)


def _cancel(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """No pages, no row, or the client went away: all that was staged goes back."""
    returned = s.locks + s.rows + s.pages
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - returned))


def _admit(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """What was staged is the running request's."""
    guards = (Guard("pages are there, and so a row", 1 <= s.pages),)
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - s.locks - s.rows - s.pages), guards)


def _is_staging(d: Domain, s: Admission) -> Flag:
    return s.staging


ADMISSION_ACTIONS: dict[str, Action] = {
    a.name: a
    for a in (
        Action("stage", "", "an admission locks its prefix", lambda d, s: d.no(s.staging), _stage),
        Action("stage_row", "", "it takes a row", _is_staging, _stage_row),
        Action("stage_pages", "", "it takes pages", _is_staging, _stage_pages, {"size": "count"}),
        Action("cancel_admission", "", "it fails or is cancelled", _is_staging, _cancel),
        Action("admit", "", "it succeeds", _is_staging, _admit),
    )
}


def _nothing_stays_staged(d: Domain, s: Admission) -> Flag:
    nothing = d.every(s.locks == 0, s.rows == 0, s.pages == 0, s.held == 0)
    return d.every(implies(d, d.no(s.staging), nothing), s.held == s.locks + s.rows + s.pages)


ADMISSION_INVARIANTS: dict[str, Invariant] = {
    "I19": Invariant(
        "I19",
        "an admission that fails or is cancelled returns everything that it staged",
        "domain page; sglang-jax #994",
        "A lock or row that a failed admission keeps is lost: no request names it.",
        _nothing_stays_staged,
    )
}


@dataclass(frozen=True)
class Deferred:
    """A free of a row's page that waits, e.g. for the end of a free group or of a step in flight. Values are page ids."""

    waits: Flag = described("flag", "deferred", "a free waits")
    row_page: Count = described("count", "deferred", "the page that the row names now")
    listed: Count = described("count", "deferred", "the page that the waiting free names")
    meant: Count = described("count", "ghost", "the page that was meant when the free was asked for")

    def but(self, **changes: Any) -> Deferred:
        return dataclasses.replace(self, **changes)


def nothing_deferred(d: Domain) -> Deferred:
    return Deferred(d.false, 1, 0, 0)


def _defer(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """The indices are copied."""
    return Step(s.but(waits=d.true, listed=s.row_page, meant=s.row_page))


def _overwrite(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """The row gets another page, for the next turn or another request."""
    return Step(s.but(row_page=p.page), (Guard("a page id", 1 <= p.page),))


def _carry_out(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    right = Require("I24", s.listed == s.meant, "the page that is freed is the one that was meant")
    return Step(s.but(waits=d.false, listed=0, meant=0), effects=(right,))


DEFERRED_ACTIONS: dict[str, Action] = {
    a.name: a
    for a in (
        Action("defer_free", "", "a free is put off", lambda d, s: d.no(s.waits), _defer),
        Action("overwrite_row", "", "the row is written anew", lambda d, s: d.true, _overwrite, {"page": "count"}),
        Action("carry_out_free", "", "the free is carried out", lambda d, s: s.waits, _carry_out),
    )
}

DEFERRED_INVARIANTS: dict[str, Invariant] = {
    "I24": Invariant(
        "I24",
        "deferred frees keep copies of indices, no views of rows that may change",
        "domain page",
        "A view of a row frees whatever the row names later: a page of someone else, while the meant one leaks.",
        lambda d, s: implies(d, s.waits, s.listed == s.meant),
    )
}
