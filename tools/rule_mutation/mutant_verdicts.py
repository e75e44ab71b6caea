"""The verdict on one mutant: which check notices it, or that it is no mistake, or that nothing notices it.

First the proof is asked, as `kvproof prove` asks it (`mutant_proof.py`). What it does not notice, tests may: a fault that breaks
other invariants than it did, a replay of right runs that disagrees, a small instance with another number of states. The first
check that notices names the verdict.

Equivalent is shown by the solver, never guessed: all actions have the same step in every well-formed state, or in every
state that the invariants allow, and what effects and invariants demand is the same everywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import z3

from kvproof.model.questions import PROVED
from rule_mutation.mutant_proof import BY_PROOF, CRASH, LEMMAS, Known, Noticed, Same, proved
from rule_mutation.mutant_replay import INSTANCES, Runs
from rule_mutation.mutant_spec import NotANumber, SpecCopy, copy_of_spec
from rule_mutation.mutant_terms import (
    WRONG_RULE,
    Meaning,
    checks_that_differ,
    effects_that_differ,
    invariants_that_differ,
    rules_that_differ,
    same,
)
from rule_mutation.mutants import Mutant, is_of_pages, rule_modules
from rule_mutation.page_terms import pages_that_differ

KILLED, EQUIVALENT, SURVIVED = "killed", "equivalent", "survived"
NO_MUTANT, NOT_JUDGED = "no mutant", "not judged"
KILL_MATRIX, CONFORMANCE, STATE_COUNT = "kill matrix", "conformance", "state count"
RUN_BY_NOTHING = "no action, effect or invariant that is judged here runs it"
NO_ANSWER = ": unknown"
"""The end of what is said of a mutant that the proof notices because the solver gives no answer."""
CHECKS = (*BY_PROOF, KILL_MATRIX, CONFORMANCE, STATE_COUNT)
"""Those of the proof first; the others need tests: of all faults, replays, pinned numbers."""


@dataclass(frozen=True)
class Verdict:
    """`by` names the check that killed it, `detail` what the check said."""

    outcome: str
    by: str = ""
    detail: str = ""


class Judge:
    """The right specification with everything about it that mutants are compared with, worked out once."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.right = copy_of_spec()
        self.meaning = Meaning(self.right)

    @cached_property
    def runs(self) -> list[Runs]:
        return [Runs(self.right, instance) for instance in INSTANCES]

    @cached_property
    def _breaks(self) -> dict[str, set[str]]:
        """What each fault breaks by induction. (What it is pinned to may count the end of its shortest run as well.)"""
        return {name: _broken_by(self.right, fault) for name, fault in self.right.faults.items()}

    def verdict(self, mutant: Mutant, tree: ast.Module) -> Verdict:
        try:
            copy = copy_of_spec(mutant.module, tree)
            return self._judged(copy, mutant.module, (str(rule_modules()[mutant.module]), mutant.begins))
        except NotANumber:
            return Verdict(NO_MUTANT)
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, NameError, z3.Z3Exception) as error:
            return Verdict(KILLED, CRASH, f"{type(error).__name__}: {error}")

    def _judged(self, copy: SpecCopy, module: str, mutated: tuple[str, int]) -> Verdict:
        difference, noticed = Difference(self.meaning, copy), None
        try:
            proof = proved(copy, self.known, mutated, difference)
        except Noticed as found:
            if found.is_sure:
                return Verdict(KILLED, found.by, found.said)
            noticed = found
        except Same:
            pass
        # What the solver cannot show of pages for rows of any length may be the same on three positions.
        is_of_long_rows = noticed is not None and noticed.by == LEMMAS and is_of_pages(module)
        if not is_of_long_rows and difference.is_nothing:
            return Verdict(EQUIVALENT, "in every state") if copy.reached else Verdict(NOT_JUDGED, "", RUN_BY_NOTHING)
        if noticed:
            return Verdict(KILLED, noticed.by, f"{noticed.said}{NO_ANSWER}")
        if said := next(self._other_kills(copy, difference), ""):
            return Verdict(KILLED, KILL_MATRIX, said)
        differ = difference.of_allowed_states
        in_ledger = bool(differ & set(copy.ledger.actions))
        if in_ledger and (said := next((f for runs in self.runs if (f := runs.noticed(copy))), "")):
            return Verdict(KILLED, CONFORMANCE, said)
        if said := self._other_count(copy, proof, differ):
            return Verdict(KILLED, STATE_COUNT, said)
        if differ:
            return Verdict(SURVIVED, "", f"another step of {', '.join(sorted(differ))}")
        if difference.what_is_asked:
            return Verdict(SURVIVED, "", f"asks less or more, by {', '.join(difference.what_is_asked)}")
        return Verdict(EQUIVALENT, "in every state that the invariants allow")

    def _other_count(self, copy: SpecCopy, proof: Any, differ: set[str]) -> str:
        """An instance, or a small machine within some steps, with another number of states than tests pin."""
        for found, right in zip(proof.reachable, self._states, strict=True):
            if found.states != right:
                return f"{found.states} states, not {right}, with P={found.page_size} {dict(found.config)}"
        for machine in (m for m in copy.machines[1:] if differ & set(m.actions)):
            found, right = copy.explore.walk(machine).states, self._walks[machine.name]
            if found != right:
                return f"{machine.name}: {found} states, not {right}"
        return ""

    @cached_property
    def _states(self) -> list[int]:
        """Of each instance that a proof explores, by the right rules."""
        kept = (asked.kept for what, asked in self.known.asked.items() if what.startswith("all of "))
        return [found["states"] for group in kept for found, _ in group]

    @cached_property
    def _walks(self) -> dict[str, int]:
        """States of the small machines within some steps, by the right rules; tests pin them."""
        return {m.name: self.right.explore.walk(m).states for m in self.right.machines[1:]}

    def _other_kills(self, copy: SpecCopy, difference: Difference) -> Iterator[str]:
        """Faults that no longer break what they broke."""
        for name, deviations in difference.wrong.faults.items():
            known = self.meaning.faults[name]
            is_same = all(same(known[a].parts(), terms.parts()) for a, terms in deviations.items())
            if is_same and not difference.invariants:
                continue
            if (broken := _broken_by(copy, copy.faults[name])) != self._breaks[name]:
                yield f"{name} breaks {_names(broken)}, not {_names(self._breaks[name])}"


class Difference:
    """What a mutant says otherwise than the right specification. Each part is worked out when it is first asked."""

    def __init__(self, right: Meaning, copy: SpecCopy) -> None:
        self.right, self.wrong = right, Meaning(copy)

    @cached_property
    def rules(self) -> set[str]:
        return set(rules_that_differ(self.right, self.wrong))

    @cached_property
    def demands(self) -> list[str]:
        return effects_that_differ(self.right, self.wrong)

    @cached_property
    def invariants(self) -> list[str]:
        return invariants_that_differ(self.right, self.wrong)

    @cached_property
    def of_allowed_states(self) -> set[str]:
        """Rules whose step is another one in some state that the invariants allow."""
        if self.starts_elsewhere:
            return set(self.wrong.rules)
        return set(rules_that_differ(self.right, self.wrong, self.right.allowed)) if self.rules else set()

    @cached_property
    def starts_elsewhere(self) -> bool:
        return not same(map(z3.simplify, self.right.start), map(z3.simplify, self.wrong.start))

    @cached_property
    def other_checks(self) -> list[str]:
        """Stages of a turn, the rank, situations that are looked for, what is asked of wrong rules."""
        return checks_that_differ(self.right.others, self.wrong.others)

    @cached_property
    def pages(self) -> list[str]:
        """Statements on pages, and meanings of effects."""
        return pages_that_differ(self.right.copy, self.wrong.copy)

    @property
    def what_is_asked(self) -> list[str]:
        return [*self.demands, *self.invariants, *self.other_checks, *self.pages]

    @property
    def is_nothing(self) -> bool:
        return not (self.rules or self.what_is_asked or self.starts_elsewhere)

    @property
    def has_other_states(self) -> bool:
        return bool(self.of_allowed_states) or any(not name.startswith(WRONG_RULE) for name in self.other_checks)


def _broken_by(copy: SpecCopy, fault: Any) -> set[str]:
    """Invariants that the fault's actions do not keep, the auxiliary ones left out."""
    cells = (cell for action in fault.deviations.values() for cell in copy.prove.induction_step(action, []))
    return {cell.invariant for cell in cells if cell.verdict != PROVED} & set(fault.machine.invariants)


def _names(invariants: set[str]) -> str:
    return ", ".join(sorted(invariants)) or "nothing"
