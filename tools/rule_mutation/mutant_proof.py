"""What `kvproof prove` says of a mutant: the proof of the mutated copy, up to the first question that it answers otherwise.

Nothing is asked here that a proof does not ask: `model/prove.py` of the copy runs, and the asker that it is given stops it.
What a question is made of was noted once, with the right rules (`recorded`): the functions of the specification that run
while it is posed. A question whose functions a mutant does not touch is the same, and so is its answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, Protocol

from kvproof.model.questions import PROVED, UNKNOWN, Answer, Asker, Label, ask_z3, one_by_one
from kvproof.model.small_rows import SMALL_ROWS
from rule_mutation.mutant_spec import SpecCopy, copy_of_spec
from rule_mutation.page_terms import is_refuted

CRASH, INDUCTION, LEMMAS, SITUATIONS = "does not run", "induction", "lemmas on pages", "situations of pages"
TWINS = "wrong rules that must fail"
LIVENESS, EVENTS, RUNS, STATES, OTHERS = "liveness", "events", "expected runs", "all states", "other questions"
BY_PROOF = (CRASH, INDUCTION, LEMMAS, SITUATIONS, SMALL_ROWS, TWINS, LIVENESS, EVENTS, RUNS, STATES, OTHERS)
OF_QUESTIONS = {
    "induction": INDUCTION,
    "(initial)": INDUCTION,
    "pages": LEMMAS,
    "twin": TWINS,
    "liveness": LIVENESS,
    "events": EVENTS,
    "small": SMALL_ROWS,
    "can": SITUATIONS,
}
"""By the first word of a question's name."""
OF_RUNS, OF_STATES = "expected runs", "all of "
LITTLE = 300_000
"""Z3's resource units for one goal of a lemma on pages: a false one is never refuted, and a true one needs less."""

ASKED_BEFORE_COMPARING = 15
"""Most mistakes are noticed by the first questions that they touch; the others may be none, which is seen sooner by comparing."""

Place = tuple[str, int]
"""A function: its file and the line that it begins in."""


class Noticed(Exception):
    """A proof of the mutated rules does not say `proved`. `is_sure`: there is a counterexample, or a search has an end."""

    def __init__(self, by: str, said: str, is_sure: bool = True) -> None:
        super().__init__(said)
        self.by, self.said, self.is_sure = by, said, is_sure


class Same(Exception):
    """The mutated rules say what the right ones say, in every state."""


class Compared(Protocol):
    """What a mutant says otherwise, worked out when it is first asked."""

    @property
    def is_nothing(self) -> bool: ...

    @property
    def has_other_states(self) -> bool:
        """A search through the states of the ledger may find other states or situations."""
        ...


@dataclass(frozen=True)
class Asked:
    """One question or search: the functions that run for it, and what came of it (labels, or data as a cache keeps it)."""

    reached: frozenset[Place]
    kept: Any


@dataclass
class Known:
    """What the proof of the right rules asks. `on_import`: functions that run when the modules are loaded."""

    asked: dict[str, Asked] = field(default_factory=dict)
    on_import: frozenset[Place] = frozenset()

    def untouched(self, name: str, mutated: Place | None) -> Asked | None:
        """The question as it is with the right rules too; None if the mutant may have changed it."""
        asked = self.asked.get(name)
        if asked is None or mutated is None or mutated in asked.reached or mutated in self.on_import:
            return None
        return asked if mutated in self._everywhere else None

    @cached_property
    def _everywhere(self) -> frozenset[Place]:
        """What no question is known to run may be run in a way that nobody noted."""
        return frozenset().union(*(asked.reached for asked in self.asked.values()))


class _Counted(Asker):
    """Gives each question a name of its own: two wrong rules may break one condition."""

    recalls_beside = False  # what a search says is compared by terms, or the functions that it runs are noted

    def __init__(self) -> None:
        self._met: Counter[str] = Counter()

    def _name(self, name: str) -> str:
        self._met[name] += 1
        return f"{name} #{self._met[name]}"


class _Recording(_Counted):
    """Notes the functions that each question runs. Results that a module keeps are dropped before."""

    def __init__(self, copy: SpecCopy) -> None:
        super().__init__()
        self.copy = copy
        self.asked: dict[str, Asked] = {}

    def answers(self, question: Any) -> Any:
        with self._noting() as reached:
            posed = question.pose()
        found = ask_z3(posed)
        self.asked[self._name(question.name)] = Asked(frozenset(reached), list(posed.labels))
        return found

    def recall(self, what: str, search: Callable[[], Any], kept_as: Any) -> Any:
        with self._noting() as reached:
            found = search()
        self.asked[self._name(what)] = Asked(frozenset(reached), kept_as.dump_python(found, mode="json"))
        return found

    @contextmanager
    def _noting(self) -> Iterator[set[Place]]:
        for module in self.copy.modules.values():
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
        with _noted() as reached:
            yield reached


@contextmanager
def _noted() -> Iterator[set[Place]]:
    """The functions that are called."""
    codes, places = set[Any](), set[Place]()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        yield places
    finally:
        sys.setprofile(None)
        places.update((code.co_filename, code.co_firstlineno) for code in codes)


def recorded() -> Known:
    """The proof of the right rules. Raises AssertionError where it does not succeed: then there is nothing to compare with."""
    with _noted() as on_import:
        copy = copy_of_spec()
    recording = _Recording(copy)
    proof = copy.prove.prove(asker=recording)
    assert proof.verdict == PROVED, f"the rules are {proof.verdict} without any mistake in them"
    return Known(recording.asked, frozenset(on_import))


class _Judging(_Counted):
    """Asks what a mutant may have changed, and ends the proof at the first answer that is not as it must be."""

    def __init__(self, copy: SpecCopy, known: Known, mutated: Place | None, compared: Compared) -> None:
        super().__init__()
        self.copy, self.known, self.mutated, self.compared = copy, known, mutated, compared
        self.asked = 0

    def answers(self, question: Any) -> dict[Label, Answer]:
        if same := self.known.untouched(self._name(question.name), self.mutated):
            return {tuple(label): Answer(PROVED, 0.0) for label in same.kept}
        self.asked += 1
        if self.asked == ASKED_BEFORE_COMPARING and self.compared.is_nothing:
            raise Same
        kind, _, of = question.name.partition(" ")
        by = OF_QUESTIONS.get(kind.rstrip(":"), OTHERS)
        found = {}
        limit = {"rlimit": LITTLE} if by == LEMMAS else {}
        for label, answer in one_by_one(question.pose(), **limit):
            if answer.verdict != PROVED:
                said = f"{question.name} / {label[0]}: {label[1]}"
                # The solver refutes no lemma on all rows; three of them may.
                is_sure = answer.verdict != UNKNOWN or (by == LEMMAS and is_refuted(self.copy, of))
                raise Noticed(by, said, is_sure)
            found[label] = answer
        return found

    def recall(self, what: str, search: Callable[[], Any], kept_as: Any) -> Any:
        name = self._name(what)
        same = self.known.untouched(name, self.mutated)
        if not same and what.startswith(OF_STATES):
            if self.compared.is_nothing:
                raise Same
            # The invariants are kept, so every state that is reached is one that they allow.
            same = None if self.compared.has_other_states else self.known.asked.get(name)
        if same:
            return kept_as.validate_python(same.kept)
        try:
            found = search()
        except AssertionError as error:
            raise Noticed(STATES, f"{what}: {error}"[:300]) from error
        if what == OF_RUNS and found:
            raise Noticed(RUNS, found[0])
        return found


def proved(copy: SpecCopy, known: Known, mutated: Place | None, compared: Compared) -> Any:
    """The proof of a copy that has a mutant in it. Raises Noticed where it is not `proved`, Same where it need not be asked."""
    proof = copy.prove.Proof(None)

    def heed(what: str) -> None:
        if proof.vacuous:
            raise Noticed(TWINS if proof.vacuous[0].startswith("nothing needs") else STATES, proof.vacuous[0])

    copy.prove._find_out(proof, heed, _Judging(copy, known, mutated, compared))
    heed("the end")
    return proof
