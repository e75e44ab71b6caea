"""The second opinion: cvc5 answers every question from its SMT-LIB text, and the oracle runs every counterexample again.

A proof is as good as its solver. Here two must agree, of which the second never sees a Z3 term, only text. A counterexample of
the induction is a model of Z3's: its numbers are put into the oracle, which must find the invariants true before the step,
the step allowed, and the goal false after it. A shortest run is run again from the empty pool.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import z3

from kvproof.model.explore import Run
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.model.questions import (
    BROKEN,
    OF_GOAL,
    OF_POSSIBLE,
    POSSIBLE,
    UNKNOWN,
    Answer,
    Answers,
    Asker,
    Label,
    Posed,
    Question,
    ask_z3,
    checked,
    z3_solver,
)
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.machine import LEDGER, Machine, machine_of

CVC5_RLIMIT = 4_000_000
"""cvc5's resource units for one check, twelve times what the hardest question needs: the load does not matter."""

INSTALL = "python -m pip install 'kvproof[certify]'"


class SolverMissing(Exception):
    """cvc5 is not installed; the message says how to."""


@dataclass(frozen=True)
class Opinion:
    """What each solver says about one goal."""

    question: str
    label: Label
    z3: str
    cvc5: str

    @property
    def verdict(self) -> str:
        """agree, disagree, or unknown: nothing is certified that either of them left open."""
        if UNKNOWN in (self.z3, self.cvc5):
            return UNKNOWN
        return "agree" if self.z3 == self.cvc5 else "disagree"


@dataclass
class Certificate:
    """All opinions of one run, and what became of its counterexamples."""

    solvers: tuple[str, str]
    opinions: list[Opinion] = field(default_factory=list)
    seconds: float = 0.0
    confirmed: int = 0
    refuted: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def disputed(self) -> list[Opinion]:
        return [o for o in self.opinions if o.verdict != "agree"]

    @property
    def verdict(self) -> str:
        """agree, disagree, or unknown. Nothing asked is never a pass."""
        found = {o.verdict for o in self.opinions}
        if "disagree" in found or self.refuted:
            return "disagree"
        return "agree" if found == {"agree"} else UNKNOWN


class Certifying(Asker):
    """Asks Z3 and cvc5 each question, neither from a cache; answers with Z3's word and keeps both."""

    def __init__(self, second: Callable[[str, Posed], Answers] | None = None) -> None:
        self._second = second or cvc5_reader()
        self.certificate = Certificate((f"z3 {z3.get_version_string()}", f"cvc5 {cvc5_version()}"))

    def answers(self, question: Question) -> Answers:
        posed = question.pose()
        first = ask_z3(posed)
        begin = time.perf_counter()
        try:
            second = self._second(posed.script, posed)
        except RuntimeError as error:  # cvc5 cannot read or answer the text: all of it counts as unknown
            second = {}
            self.certificate.errors.append(f"{question.name}: cvc5: {' '.join(str(error).split())}")
        self.certificate.seconds += time.perf_counter() - begin
        for label, answer in first.items():
            said = second[label].verdict if label in second else UNKNOWN
            self.certificate.opinions.append(Opinion(question.name, label, answer.verdict, said))
            if answer.verdict == BROKEN and question.action is not None and label != POSSIBLE:
                self._judge(f"{question.name}: {label[0]}: {label[1]}", shows(question.action, posed, label))
        return first

    def confirm_run(self, run: Run, actions: Mapping[str, Action], machine: Machine = LEDGER) -> None:
        """The run of a counterexample, step by step in a fresh oracle."""
        self._judge("the shortest run", runs_as_said(run, actions, machine))

    def _judge(self, what: str, holds: bool) -> None:
        if holds:
            self.certificate.confirmed += 1
        else:
            self.certificate.refuted.append(what)


def cvc5_version() -> str:
    try:
        return version("cvc5")
    except ModuleNotFoundError:
        return "?"


def cvc5_reader() -> Callable[[str, Posed], Answers]:
    """The function that lets cvc5 read a script. Raises SolverMissing where cvc5 is not installed."""
    try:
        import cvc5
    except ImportError as error:
        raise SolverMissing(f"--certify needs the solver cvc5, which is not installed: {INSTALL}") from error

    def read(script: str, posed: Posed) -> Answers:
        solver = cvc5.Solver(cvc5.TermManager())
        solver.setOption("incremental", "true")
        solver.setOption("rlimit-per", str(CVC5_RLIMIT))
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "question")
        symbols = parser.getSymbolManager()
        said: list[tuple[str, float]] = []
        while not (command := parser.nextCommand()).isNull():
            begin = time.perf_counter()
            if result := str(command.invoke(solver, symbols)).strip():
                said.append((result, time.perf_counter() - begin))
        return labelled(posed, said)

    return read


def labelled(posed: Posed, said: list[tuple[str, float]]) -> Answers:
    """One word of a solver for each label; anything but sat and unsat (a limit reached, an error) is unknown."""
    answers: Answers = {}
    for label, (word, seconds) in zip(posed.labels, said, strict=False):
        meaning = OF_POSSIBLE if label == POSSIBLE else OF_GOAL
        answers[label] = Answer(meaning.get(word, UNKNOWN), seconds)
    return answers


# --- counterexamples ------------------------------------------------------------------------------------------------


def shows(action: Action, posed: Posed, label: Label) -> bool:
    """Z3's model of a denied goal, evaluated by the oracle: all was well before the step, and the goal fails after it."""
    solver = z3_solver()
    solver.add(*posed.assumptions, z3.Not(posed.goals[label]))
    if checked(solver) != "sat":
        return False
    machine = machine_of(action.name)
    oracle, before, params = numbers(machine, action, solver.model())
    well_before = all(i.holds(oracle.d, before) for i in machine.all_invariants.values())
    if not well_before or not action.applies(oracle.d, before):
        return False
    outcome = oracle.asked_step(action, before, params)
    return not outcome.failed_guards and _fails(machine, oracle.d, outcome, label)


def numbers(machine: Machine, action: Action, model: Any) -> tuple[Oracle, Any, dict[str, Value]]:
    """A model's values: the configuration, the state and the parameters."""
    d = Symbols()

    def number(term: Any) -> Any:
        value = model.eval(term, model_completion=True)
        return value.as_long() if z3.is_int_value(value) else z3.is_true(value)

    page_size = number(d.page_size)

    def concrete(sort: str, symbol: Any) -> Value:
        return number(symbol.pages) * page_size + number(symbol.offset) if sort == "length" else number(symbol)

    symbols = d.arbitrary(machine.state)
    fields = dataclasses.fields(machine.state)
    state = {f.name: concrete(f.metadata["sort"], getattr(symbols, f.name)) for f in fields}
    given = d.parameters(action.params)
    params = {name: concrete(sort, getattr(given, name)) for name, sort in action.params.items()}
    config = {
        "overlap": number(d.overlap),
        "speculation": 1 if number(d.spec_v1) else 2 if number(d.spec_v2) else 0,
        "drafts": concrete("length", d.drafts),
        "window": concrete("length", d.window) if number(d.windowed) else 0,
        "tree": number(d.tree),
    }
    oracle = Oracle.of(page_size, int(concrete("length", d.row_width)), machine.actions, **config)
    return oracle, machine.state(**state), params


def _fails(machine: Machine, d: Integers, outcome: Outcome, label: Label) -> bool:
    about, sentence = label
    if any((c.invariant, c.sentence) == label for c in outcome.failed_conditions):
        return True
    invariant = machine.all_invariants[about]
    return sentence == invariant.statement and not invariant.holds(d, outcome.after)


def runs_as_said(run: Run, actions: Mapping[str, Action], machine: Machine = LEDGER) -> bool:
    """From nothing, each step is allowed and gives the state that was said; only the last breaks what was said."""
    oracle = Oracle.of(run.page_size, run.row_width, actions, **run.config)
    state = machine.start(oracle.d)
    for number, taken in enumerate(run.steps, start=1):
        action = actions[taken.outcome.action.name]
        if not action.applies(oracle.d, state):
            return False
        outcome = oracle.asked_step(action, state, taken.params)
        if outcome.failed_guards or outcome.after != taken.outcome.after:
            return False
        broken = outcome.broken(oracle.d, machine.invariants)
        if broken != run.broken if number == len(run.steps) else set(run.broken) <= set(broken):
            return False
        state = outcome.after
    return bool(run.steps)


def as_json(certificate: Certificate) -> dict[str, Any]:
    return {
        "solvers": list(certificate.solvers),
        "verdict": certificate.verdict,
        "asked": len(certificate.opinions),
        "seconds": round(certificate.seconds, 3),
        "counterexamples_confirmed": certificate.confirmed,
        "counterexamples_refuted": certificate.refuted,
        "errors": certificate.errors,
        "disputed": [
            {"question": o.question, "about": o.label[0], "part": o.label[1], "z3": o.z3, "cvc5": o.cvc5}
            for o in certificate.disputed
        ],
    }
