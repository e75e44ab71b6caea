"""Two small machines: an admission that stages resources and may fail half-way, and a free that is carried out later."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, implies
from kvproof.spec.invariants import InvariantTable
from kvproof.spec.state import State, described


@dataclass(frozen=True)
class Admission(State):
    """What one admission has staged: a tree lock, then a row, then pages. `admitted`: it is a running request's now."""

    staging: Flag = described("flag", "admission", "an admission is under way")
    locks: Count = described("count", "admission", "tree locks that it holds")
    rows: Count = described("count", "admission", "rows that it took")
    pages: Count = described("count", "admission", "pages that it took")
    held: Count = described(
        "count", "ghost", "locks, rows and pages that were handed to it and not returned or admitted"
    )


def idle(d: Domain) -> Admission:
    return Admission(d.false, 0, 0, 0, 0)


ADMISSION_ACTIONS = ActionTable()
admission_action = ADMISSION_ACTIONS.action


def _is_staging(d: Domain, s: Admission) -> Flag:
    return s.staging


@admission_action(when=lambda d, s: d.no(s.staging))
def stage(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """An admission locks its prefix.

    The matched prefix is locked first, so that no eviction takes it while pages are looked for.
    """
    return Step(s.but(staging=d.true, locks=s.locks + 1, held=s.held + 1))


@admission_action(when=_is_staging)
def stage_row(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """An admission takes a row."""
    return Step(s.but(rows=s.rows + 1, held=s.held + 1), (Guard("it has no row yet", s.rows == 0),))


@admission_action(when=_is_staging, takes={"size": "count"})
def stage_pages(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """An admission takes pages."""
    guards = (Guard("pages are taken for a row", s.rows == 1), Guard("some pages", 1 <= p.size))
    return Step(s.but(pages=s.pages + p.size, held=s.held + p.size), guards)


@admission_action(when=_is_staging)
def cancel_admission(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """An admission fails or is cancelled.

    No pages, no row, or the client went away: all that was staged goes back.
    """
    returned = s.locks + s.rows + s.pages
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - returned))


@admission_action(when=_is_staging)
def admit(d: Domain, s: Admission, p: SimpleNamespace) -> Step:
    """An admission succeeds: what was staged is the running request's."""
    guards = (Guard("pages are there, and so a row", 1 <= s.pages),)
    return Step(s.but(staging=d.false, locks=0, rows=0, pages=0, held=s.held - s.locks - s.rows - s.pages), guards)


ADMISSION_INVARIANTS = InvariantTable()


@ADMISSION_INVARIANTS.invariant("I19", source="domain page; sglang-jax #994")
def nothing_stays_staged(d: Domain, s: Admission) -> Flag:
    """An admission that fails or is cancelled returns everything that it staged.

    A lock or row that a failed admission keeps is lost: no request names it.
    """
    nothing = d.every(s.locks == 0, s.rows == 0, s.pages == 0, s.held == 0)
    return d.every(implies(d, d.no(s.staging), nothing), s.held == s.locks + s.rows + s.pages)


@dataclass(frozen=True)
class Deferred(State):
    """A free of a row's page that waits, e.g. for the end of a free group or of a step in flight. Values are page ids."""

    waits: Flag = described("flag", "deferred", "a free waits")
    row_page: Count = described("count", "deferred", "the page that the row names now")
    listed: Count = described("count", "deferred", "the page that the waiting free names")
    meant: Count = described("count", "ghost", "the page that was meant when the free was asked for")


def nothing_deferred(d: Domain) -> Deferred:
    return Deferred(d.false, 1, 0, 0)


DEFERRED_ACTIONS = ActionTable()
deferred_action = DEFERRED_ACTIONS.action


@deferred_action(when=lambda d, s: d.no(s.waits))
def defer_free(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """A free is put off: the indices are copied."""
    return Step(s.but(waits=d.true, listed=s.row_page, meant=s.row_page))


@deferred_action(when=lambda d, s: d.true, takes={"page": "count"})
def overwrite_row(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """The row is written anew: it names another page, for the next turn or another request."""
    return Step(s.but(row_page=p.page), (Guard("a page id", 1 <= p.page),))


@deferred_action(when=lambda d, s: s.waits)
def carry_out_free(d: Domain, s: Deferred, p: SimpleNamespace) -> Step:
    """The free is carried out."""
    return Step(s.but(waits=d.false, listed=0, meant=0))


DEFERRED_INVARIANTS = InvariantTable()


@DEFERRED_INVARIANTS.invariant("I24", source="domain page")
def deferred_frees_keep_copies(d: Domain, s: Deferred) -> Flag:
    """Deferred frees keep copies of indices, no views of rows that may change.

    A view of a row frees whatever the row names later: a page of someone else, while the meant one leaks.
    """
    return implies(d, s.waits, s.listed == s.meant)
