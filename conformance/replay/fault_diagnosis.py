"""Which known faults explain a bad event, and what it breaks.

The event is judged anew under each faulty rule of the catalogue: the one that predicts exactly what was seen explains it.

No ledger sees the locks of the tree, and no event tells of one. A memory check shows what became of the counters, an eviction
what was taken for unlocked; a fault explains that if the small machine of a tree node comes to the same by it
(`model/witness_machines.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from kvproof.conformance.replay.judge import ABOUT, Difference, Judgement, check_terms, judge, parameters
from kvproof.conformance.replay.memory_check import (
    OF_THE_TREE,
    PROTECTED,
    is_about_holders,
    seen_of_holders,
    true_of_holders,
)
from kvproof.conformance.replay.page_book import PageBook, Problem
from kvproof.model.oracle import Oracle
from kvproof.model.witness_machines import drifts, lets_evict_what_is_held
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import PROGRESS, TREE, Machine
from kvproof.spec.state import Ledger
from kvproof.spec.trace import Event


@dataclass(frozen=True)
class BadEvent:
    """An event that its rule does not allow, and all that was known when it came. `right`: how the rule judged it."""

    oracle: Oracle
    book: PageBook
    key: str
    before: Ledger
    event: Event
    right: Judgement

    def under(self, fault: Fault) -> Judgement:
        """The last event, judged by the faulty form of the action."""
        deviating = fault.in_traces[self.right.outcome.action.name]
        outcome = self.oracle.step(deviating, self.before, parameters(self.event, deviating, self.before))
        return judge(self.oracle.d, self.book, self.key, outcome, self.event)

    def follows(self, fault: Fault) -> Judgement | None:
        """How the faulty rule judges the event, if the event is what that rule says, pages included."""
        if self.right.outcome.action.name not in fault.in_traces:
            return None
        followed = self.under(fault)
        return followed if self._is_explained(followed) and not followed.moves.problems else None

    def explained_by(self) -> list[Fault]:
        return [f for f in catalogue(self.right.outcome.action.name) if self._is_explained(self.under(f))]

    def _is_explained(self, followed: Judgement) -> bool:
        """Whether a faulty rule predicts the whole event: every value that was seen, and that the event may happen at all.

        Where the right rule predicts all of that, too, the faulty one must differ in what is left: the pages that the right
        one finds wrong. A rule that predicts exactly what the right rule predicts explains nothing.
        """
        if not followed.agrees or followed.outcome.failed_guards:
            return False
        if not self.right.agrees or self.right.outcome.failed_guards:
            return True
        return bool(self.right.moves.problems) and not followed.moves.problems

    def broken(self, explained: list[Fault]) -> dict[str, str]:
        """Invariants that the event breaks: by what it did to pages, by what the fault that explains it does.

        Without an explanation the true state is unknown: then those are named that the differing values are about.
        """
        found = {problem.invariant: problem.sentence for problem in self.right.moves.problems}
        if explained:
            fault = explained[0]
            broken = self.under(fault).outcome.broken(self.oracle.d)
            found = {**broken, **found} or {i: fault.machine.invariants[i].statement for i in fault.breaks}
        else:
            rule, differences = self.right.outcome.action.name, self.right.differences
            about = dict.fromkeys(ABOUT.get(f"{rule}.{d.name}") or ABOUT[d.name] for d in differences)
            found = {**{i: INVARIANTS[i].statement for i in about}, **found}
        failed = self.right.outcome.failed_guards
        return {**found, **{f"guard of {self.event.action}": guard.sentence for guard in failed}}


@dataclass(frozen=True)
class BadCheck:
    """A memory check that read other terms than the true ones. `ended`: ledgers whose turn ended in the same step."""

    oracle: Oracle
    ledgers: Mapping[str, Ledger]
    ended: Set[str]
    event: Event

    def explained_by(self, differences: list[Difference]) -> list[Fault]:
        if all(map(is_about_holders, differences)):
            return [f for f in catalogue("check") if seen_of_holders(self.event) in self._terms_under(f)]
        return faults_behind_counters(differences)

    def _terms_under(self, fault: Fault) -> list[tuple[int, ...]]:
        """What the faulty check may read: turns that ended in this step may or may not stand in the last batch."""
        oracle = Oracle(self.oracle.d, fault.in_traces)
        reports = (check_terms(oracle, self.ledgers, lingering) for lingering in (set[str](), self.ended))
        return [true_of_holders(report, self.event) for report in reports]


def catalogue(action: str) -> list[Fault]:
    """Real deviations of one action; mutations explain nothing."""
    return [f for f in FAULTS.values() if action in f.in_traces and f.kind != "mutation"]


def faults_behind_counters(differences: Sequence[Difference]) -> list[Fault]:
    """`differences` are all that a memory check read wrongly; none if others than the tree's counters are among them."""
    if not {d.name for d in differences} <= {OF_THE_TREE, PROTECTED}:
        return []
    off = {d.name: _sign(d) for d in differences}
    seen = off.get(OF_THE_TREE, 0), off.get(PROTECTED, 0)
    return _real(lambda fault: seen in drifts(fault.id))


def faults_behind_eviction(problems: Sequence[Problem]) -> list[Fault]:
    if any(problem.invariant != "I11" for problem in problems):
        return []
    return _real(lambda fault: lets_evict_what_is_held(fault.id))


def faults_behind_retracts() -> list[Fault]:
    """Of a turn that is retracted again and again: those whose requests need not decode between two retracts."""
    return _real(lambda fault: "I18" in fault.breaks, PROGRESS)


def _real(explains: Callable[[Fault], bool], machine: Machine = TREE) -> list[Fault]:
    """Of the machine's real faults those that explain it; mutations explain nothing."""
    return [f for f in FAULTS.values() if f.machine is machine and f.kind != "mutation" and explains(f)]


def _sign(difference: Difference) -> int:
    assert isinstance(difference.seen, int) and isinstance(difference.expected, int)
    return 1 if difference.seen > difference.expected else -1
