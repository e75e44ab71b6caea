"""The rules of a machine as functions that take every step from a state, as LLVM assembly.

A state is a row of bytes, one for each field, and a step writes the row after it. What a guard reads decides where it is asked:
first those of the state alone, then those of the first parameter in the loop over its values, and so on. So most values of
the other parameters are never tried.

All functions have the same arguments: the states before and after, the configuration, and the search (`SLOTS`), numbers of 64
bits. What a step leads to is passed to `arrive` (`model/compiled/search.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvproof.model.compiled.assembly import Assembly, page_shift
from kvproof.model.integers import Integers
from kvproof.model.small_instances import values_of
from kvproof.model.tracing import Term, Tracing, reads_of
from kvproof.spec.actions import Action
from kvproof.spec.events import take
from kvproof.spec.invariants import Invariant

ARGUMENTS = "ptr %old, ptr %new, ptr %settings, ptr %search"
SETTINGS = ("page_size", "row_width", "drafts", "window", "overlap", "spec_v1", "spec_v2", "windowed", "tree")
"""The configuration as a rule reads it; behind it stands the page shift."""
SLOTS = (
    *("states", "broken", "sources", "table", "edges", "ends", "taken"),  # addresses of arrays
    *("count", "most", "mask", "source", "edge_count", "wanted", "stop"),
)
"""What a search has: rows of states, the invariants that each breaks, the state that each was reached from first, the hash
table, the states that the steps lead to, where those of each state end, how often each action was taken; then numbers."""
WORD = 8


@dataclass(frozen=True)
class StateLayout:
    """Where each field of a state stands in its row, whose length is a multiple of a word's."""

    state: type

    @cached_property
    def places(self) -> dict[str, int]:
        return {field.name: place for place, field in enumerate(dataclasses.fields(self.state))}

    @property
    def words(self) -> int:
        return -(-len(self.places) // WORD)

    def row_of(self, state: Any) -> bytes:
        """Raises OverflowError for a state with a number that needs more than a byte."""
        row = b"".join(int(getattr(state, name)).to_bytes(1, "little", signed=True) for name in self.places)
        return row.ljust(self.words * WORD, b"\0")

    def state_of(self, row: Sequence[int]) -> Any:
        """The state of a row."""
        kinds = (field.metadata["sort"] for field in dataclasses.fields(self.state))
        return self.state(*(bool(n) if kind == "flag" else n for n, kind in zip(row, kinds, strict=False)))


class Steps(Assembly):
    """One of these functions while it is written; `block` is the label that the next instruction stands under."""

    def __init__(self, layout: StateLayout) -> None:
        super().__init__()
        self.layout, self.block = layout, "entry"
        self.load(self.at("settings", SETTINGS.index("page_size")), name="%page_size")
        self.load(self.at("settings", len(SETTINGS)), name="%page_shift")

    def at(self, array: str, place: int | str, kind: str = "i64") -> str:
        """The address of a place in an array."""
        return self.put(f"getelementptr {kind}, ptr %{array}, i64 {place}")

    def get(self, slot: str, kind: str = "i64", name: str = "") -> str:
        return self.load(self.at("search", SLOTS.index(slot)), kind, name)

    def set(self, slot: str, operand: str | int) -> None:
        self.store(operand, self.at("search", SLOTS.index(slot)))

    def place(self, slot: str, place: str, kind: str = "i64") -> str:
        """The address of a place in an array of the search."""
        return self.put(f"getelementptr {kind}, ptr {self.get(slot, 'ptr')}, i64 {place}")

    def load(self, address: str, kind: str = "i64", name: str = "") -> str:
        return self.put(f"load {kind}, ptr {address}", name)

    def store(self, operand: str | int, address: str, kind: str = "i64") -> None:
        self.do(f"store {kind} {operand}, ptr {address}")

    def add(self, address: str, operand: str | int) -> None:
        """Add to the number at an address."""
        self.store(self.put(f"add i64 {self.load(address)}, {operand}"), address)

    def cut(self, operand: str, kind: str) -> str:
        """The low bits of a number."""
        return self.put(f"trunc i64 {operand} to {kind}")

    def compare(self, relation: str, one: str | int, other: str | int) -> str:
        return self.put(f"icmp {relation} i64 {one}, {other}")

    def do(self, instruction: str) -> None:
        """Write an instruction that has no value."""
        self.lines.append(instruction)

    def go(self, label: str) -> None:
        self.do(f"br label %{label}")

    def choose(self, flag: str, then: str, otherwise: str) -> None:
        """Go to one of two labels."""
        self.do(f"br i1 {flag}, label %{then}, label %{otherwise}")

    def under(self, label: str) -> None:
        """What follows stands under the label."""
        self.lines.append(f"{label}:")
        self.block = label

    def unless(self, flag: str, label: str) -> None:
        """Go to the label unless the flag holds."""
        self._names += 1
        going_on = f"on_{self._names}"
        self.choose(flag, going_on, label)
        self.under(going_on)

    def words_of(self, address: str) -> list[str]:
        places = range(self.layout.words)
        return [self.load(self.put(f"getelementptr i64, ptr {address}, i64 {place}")) for place in places]

    def store_words(self, words: Iterable[str], address: str) -> None:
        for place, word in enumerate(words):
            self.store(word, self.put(f"getelementptr i64, ptr {address}, i64 {place}"))

    def function(self, name: str, more: str = "", kind: str = "void", linkage: str = "internal ") -> str:
        """The whole function; `more`: further arguments."""
        body = "\n".join(self.lines)
        return f"define {linkage}{kind} @{name}({ARGUMENTS}{more}) {{\nentry:\n{body}\n}}\n"

    def read(self, term: Term) -> str:
        space, _, name = term.arguments[0].partition(".")
        if space == "s":
            byte = self.load(self.at("old", self.layout.places[name], "i8"), "i8")
            return self.put(f"icmp ne i8 {byte}, 0" if term.is_flag else f"sext i8 {byte} to i64")
        number = self.load(self.at("settings", SETTINGS.index(name))) if space == "d" else f"%param_{name}"
        return self.put(f"icmp ne i64 {number}, 0") if term.is_flag else number


def settings_of(d: Integers) -> list[int]:
    return [*(int(getattr(d, name)) for name in SETTINGS), page_shift(d.page_size)]


@dataclass(frozen=True)
class TracedStep:
    """One action on an arbitrary state. `failed`: by invariant, whether a side condition of it fails."""

    d: Tracing
    action: Action
    before: Any
    after: Any
    must_hold: tuple[Term, ...]
    failed: Mapping[str, Any]

    @classmethod
    def of(cls, action: Action, state: type) -> TracedStep:
        d = Tracing()
        before = d.arbitrary(state)
        params = d.parameters(action.params)
        step = action.run(d, before, params)
        after, conditions = take(d, action, before, step, params)
        failed: dict[str, Any] = {}
        for c in conditions:
            failed[c.invariant] = d.some(failed.get(c.invariant, d.false), d.no(c.holds))
        must_hold = (action.applies(d, before), *(guard.holds for guard in step.guards))
        return cls(d, action, before, after, tuple(map(d.lift, must_hold)), failed)

    def asked_with(self, known: Collection[str]) -> list[Term]:
        """The guards that read these parameters and no others."""

        def reads(guard: Term) -> set[str]:
            return {name.removeprefix("p.") for name in reads_of(guard) if name.startswith("p.")}

        return [guard for guard in self.must_hold if reads(guard) <= set(known)]


def step_source(step: TracedStep, number: int, layout: StateLayout, bits: Mapping[str, int]) -> str:
    """`take_NAME`: tells `arrive` of every step by this action, in the order of `small_instances.parameters`."""
    written, asked = Steps(layout), set[int]()

    def ask(known: Collection[str], otherwise: str) -> None:
        for guard in step.asked_with(known):
            if id(guard) not in asked:
                asked.add(id(guard))
                written.unless(written.value(guard), otherwise)

    ask((), "done")
    known, out = list[str](), "done"
    beyond_rows = written.put(f"add i64 {written.value(step.d.row_width)}, 1")
    for name, sort in step.action.params.items():
        values = values_of(name, sort)
        first, end = ("0", beyond_rows) if values is None else (values.start, values.stop)
        entered_from = written.block
        written.go(f"each_{name}")
        written.under(f"each_{name}")
        written.put(f"phi i64 [{first}, %{entered_from}], [%next_{name}, %after_{name}]", f"%param_{name}")
        written.unless(written.compare("ne", f"%param_{name}", end), out)
        known, out = [*known, name], f"after_{name}"
        ask(known, out)
    _write_after(step, written)
    failed = written.bits((bits[invariant], flag) for invariant, flag in step.failed.items())
    written.do(f"call void @arrive({ARGUMENTS}, i64 {number}, i64 {failed}, i64 {_beyond_a_byte(step, written)})")
    written.go(out)
    for name, sort in reversed([*step.action.params.items()]):
        stride = (values_of(name, sort) or range(1)).step
        written.under(f"after_{name}")
        written.put(f"add i64 %param_{name}, {stride}", f"%next_{name}")
        written.go(f"each_{name}")
    written.under("done")
    written.do("ret void")
    return written.function(f"take_{step.action.name}")


def _changed(step: TracedStep, layout: StateLayout) -> Iterable[tuple[str, Any]]:
    """The fields that the step may change, and what they are then."""
    after = ((name, getattr(step.after, name)) for name in layout.places)
    return ((name, value) for name, value in after if value is not getattr(step.before, name))


def _write_after(step: TracedStep, written: Steps) -> None:
    written.store_words(written.words_of("%old"), "%new")
    for name, value in _changed(step, written.layout):
        byte = written.cut(written.number(value), "i8")
        written.store(byte, written.at("new", written.layout.places[name], "i8"), "i8")


def _beyond_a_byte(step: TracedStep, written: Steps) -> str:
    """Not 0 if a number of the state after the step does not fit its byte."""
    found = "0"
    for _, value in _changed(step, written.layout):
        if not step.d.lift(value).is_flag:
            number = written.number(value)
            kept = written.put(f"sext i8 {written.cut(number, 'i8')} to i64")
            lost = written.put(f"xor i64 {number}, {kept}")
            found = written.put(f"or i64 {found}, {lost}")
    return found


def weigh_source(invariants: Mapping[str, Invariant], layout: StateLayout, bits: Mapping[str, int]) -> str:
    """`weigh`: a bit for each invariant that the state before does not keep."""
    d, written = Tracing(), Steps(layout)
    s = d.arbitrary(layout.state)
    broken = written.bits((bits[i.id], d.no(i.holds(d, s))) for i in invariants.values())
    written.do(f"ret i64 {broken}")
    return written.function("weigh", kind="i64")


def count_source(situations: Iterable[Callable[..., Any]], layout: StateLayout) -> str:
    """`count`: adds 1 to the number of each situation that the state before meets, where else the actions are counted."""
    d, written = Tracing(), Steps(layout)
    s = d.arbitrary(layout.state)
    for place, holds in enumerate(situations):
        written.add(written.place("taken", str(place)), written.number(d.lift(holds(d, s))))
    written.do("ret void")
    return written.function("count")
