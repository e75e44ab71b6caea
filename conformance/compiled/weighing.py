"""The invariants as LLVM assembly: which ones a ledger breaks, and which ones it exercises.

What an invariant says of a ledger follows from the fields that it reads. So behind a rule that writes few fields only the
invariants that read one of them are weighed: the others are broken, and exercised, as before. A ledger keeps what it exercised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.compiled import layout
from kvproof.conformance.compiled.assembly import PARAMETERS, Assembly
from kvproof.conformance.replay.compared_fields import ledger_fields_in
from kvproof.conformance.replay.coverage import exercised_by_state
from kvproof.model.tracing import Tracing
from kvproof.spec.invariants import Invariant
from kvproof.spec.state import Ledger

FEW = 0.5
"""The share of all invariants up to which it pays to compile a function for those that a rule can change."""
ALL = "weigh_invariants"
BREAKS_NOTHING_NEW = f"""
define internal i1 @breaks_nothing_new({PARAMETERS}) {{
  %none = icmp eq i64 %number, 0
  br i1 %none, label %fine, label %ask
fine:
  ret i1 true
ask:
  %before = call i64 @{ALL}({PARAMETERS})
  %broken_before = lshr i64 %before, {layout.BROKEN_BIT}
  %held_before = xor i64 %broken_before, -1
  %new_ones = and i64 %number, %held_before
  %right = icmp eq i64 %new_ones, 0
  ret i1 %right
}}
"""
"""`number`: the invariants that are broken after the event. An invariant that did not hold before is nobody's fault now."""


@dataclass(frozen=True)
class Weighed:
    """One invariant on an arbitrary ledger; both are terms."""

    bit: int
    broken: Any
    exercised: Any

    @property
    def fields(self) -> frozenset[str]:
        """Of the ledger, those that it reads."""
        return ledger_fields_in(self.broken, self.exercised)


class Weigher:
    """Writes the functions that weigh all invariants, or those that a rule can have changed: each such set once."""

    def __init__(self, invariants: Mapping[str, Invariant]) -> None:
        d = Tracing()
        s = d.arbitrary(Ledger)
        broken = [d.no(invariant.holds(d, s)) for invariant in invariants.values()]
        exercised = exercised_by_state(d, s, invariants).values()
        self._all = tuple(Weighed(bit, *both) for bit, both in enumerate(zip(broken, exercised, strict=True)))
        assert len(self._all) <= layout.BROKEN_BIT
        self._reads = [(weighed, weighed.fields) for weighed in self._all]
        self._names = {self._all: ALL}

    def concerned(self, changed: Collection[str]) -> tuple[Weighed, ...]:
        """The invariants to weigh behind a rule that writes these fields: those that read one, or all if these are many."""
        some = tuple(weighed for weighed, fields in self._reads if not fields.isdisjoint(changed))
        return some if len(some) <= FEW * len(self._all) else self._all

    def weighed_behind(self, changed: Collection[str], written: Assembly) -> str:
        """Whether a rule that writes these fields broke no invariant: the name of a flag. It also writes what is exercised."""
        some = self.concerned(changed)
        name = self._names.setdefault(some, f"weigh_{len(self._names)}")
        weighed = written.call(name, "i64", old="%new")
        exercised = written.put(f"and i64 {weighed}, {(1 << layout.BROKEN_BIT) - 1}")
        if others := sum(1 << w.bit for w in self._all if w not in some):
            before = written.put(f"load i64, ptr {written.place('answer', layout.EXERCISES)}")
            kept = written.put(f"and i64 {before}, {others}")
            exercised = written.put(f"or i64 {exercised}, {kept}")
        written.store_text(exercised, "answer", layout.EXERCISES)
        broken = written.put(f"lshr i64 {weighed}, {layout.BROKEN_BIT}")
        return written.call("breaks_nothing_new", "i1", number=broken)

    def functions(self) -> Iterator[str]:
        """All that were asked for. Each returns one bit for each invariant exercised and, above, one for each broken."""
        for some, name in self._names.items():
            written = Assembly()
            bits = written.bits(
                [*((w.bit + layout.BROKEN_BIT, w.broken) for w in some), *((w.bit, w.exercised) for w in some)]
            )
            yield written.function(name, "i64", bits, linkage="" if name == ALL else "internal ")
        yield BREAKS_NOTHING_NEW
