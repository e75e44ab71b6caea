"""The invariants as source: which ones a ledger breaks, and which ones it exercises.

What an invariant says of a ledger follows from the fields that it reads. So behind a rule that writes few fields only the
invariants that read one of them are weighed: the others are broken, and exercised, as before. A ledger keeps what it exercised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.compiled.printing import bits_set, preamble, reads
from kvproof.conformance.compiled.source import Printer, function
from kvproof.conformance.replay.coverage import exercised_by_state
from kvproof.model.tracing import Term, Tracing
from kvproof.spec.invariants import Invariant
from kvproof.spec.state import Ledger

FEW = 0.5
"""The share of all invariants up to which it pays to compile a function for those that a rule can change."""


@dataclass(frozen=True)
class Weighed:
    """One invariant on an arbitrary ledger; both are terms."""

    bit: int
    broken: Any
    exercised: Any

    @property
    def fields(self) -> frozenset[str]:
        """Of the ledger, those that it reads."""
        names = set()

        def noted(term: Term) -> str:
            names.add(term.arguments[0])
            return reads(term)

        printer = Printer(noted)
        for flag in (self.broken, self.exercised):
            printer.value(flag)
        return frozenset(name.removeprefix("s.") for name in names if name.startswith("s."))


def invariants_source(invariants: Mapping[str, Invariant], written: Mapping[int, frozenset[str]]) -> str:
    """`weigh_invariants`, all of them, and `weigh_changed`, those that a rule can have changed. `written`: the fields that a rule
    writes, by its number."""
    d = Tracing()
    s = d.arbitrary(Ledger)
    holds = [d.no(invariant.holds(d, s)) for invariant in invariants.values()]
    exercised = exercised_by_state(d, s, invariants).values()
    weighed = [Weighed(bit, *both) for bit, both in enumerate(zip(holds, exercised, strict=True))]
    reading = [(w, w.fields) for w in weighed]
    concerned = {number: tuple(w for w, fields in reading if fields & names) for number, names in written.items()}
    few = {number: some for number, some in concerned.items() if len(some) <= FEW * len(weighed)}
    names = {some: f"weigh_{place}" for place, some in enumerate(dict.fromkeys(few.values()))}
    return "\n\n".join(
        [
            _weighing("weigh_invariants", weighed),
            *(_weighing(name, some) for some, name in names.items()),
            _weigh_changed(weighed, few, names),
        ]
    )


def _weighing(name: str, weighed: Sequence[Weighed]) -> str:
    """A function that tells which of them a ledger breaks, and which ones it exercises, one bit each."""
    broken = [(w.bit, w.broken) for w in weighed]
    exercised = [(w.bit, w.exercised) for w in weighed]
    printer = Printer(reads)
    printer.announce(flag for _, flag in (*broken, *exercised))
    lines = [*bits_set(printer, "broken", broken), *bits_set(printer, "exercised", exercised)]
    return function(name, "old, settings", [*preamble(), *lines, "return broken, exercised"])


def _weigh_changed(
    weighed: Sequence[Weighed],
    few: Mapping[int, tuple[Weighed, ...]],
    names: Mapping[tuple[Weighed, ...], str],
) -> str:
    """`weigh_changed(rule, before, new, settings)`: the same of a ledger behind a rule, of what it breaks only what may have come
    to break. `before`: what it exercised before; negative if that is not known."""
    lines = ["if before < 0:", "    return weigh_invariants(new, settings)"]
    for number, some in few.items():
        others = sum(1 << w.bit for w in weighed) - sum(1 << w.bit for w in some)
        lines += [
            f"if rule == {number}:",
            f"    broken, exercised = {names[some]}(new, settings)",
            f"    return broken, exercised | (before & {others})",
        ]
    return function("weigh_changed", "rule, before, new, settings", [*lines, "return weigh_invariants(new, settings)"])
