"""The second opinion: Z3 and cvc5 answer every question from one SMT-LIB text, and the oracle runs every counterexample again.

A proof is as good as its solver. Here two must agree, which read the same text and nothing else. A counterexample of
the induction is a model of Z3's: its numbers are put into the oracle, which must find the invariants true before the step,
the step allowed, and the goal false after it. A shortest run is run again from the empty pool.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Protocol

import z3

from kvproof.model.explore import Run
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.model.questions import (
    BROKEN,
    OF_GOAL,
    OF_POSSIBLE,
    POSSIBLE,
    RLIMIT,
    UNKNOWN,
    Answer,
    Answers,
    Asker,
    Label,
    Posed,
    Question,
    checked,
    z3_solver,
)
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action
from kvproof.spec.machine import LEDGER, Machine, machine_of

CVC5_RLIMIT = 4_000_000
"""cvc5's resource units for one question, twelve times what the hardest needs: the load does not matter."""

INSTALL = "python -m pip install 'kvproof[certify]'"


class SolverMissing(Exception):
    """cvc5 is not installed; the message says how to."""


@dataclass(frozen=True)
class Said:
    """A solver's word for one text: sat, unsat, or anything else, which counts as unknown.

    What it took: resource units, the same on every run, and seconds. The proof of an unsat where one was asked for.
    """

    word: str
    rlimit: int = 0
    seconds: float = 0.0
    proof: str = ""

    def verdict(self, label: Label) -> str:
        """What the word means for the goal."""
        return (OF_POSSIBLE if label == POSSIBLE else OF_GOAL).get(self.word, UNKNOWN)


Solver = Callable[[str], Said]
"""Answers one text of SMT-LIB. May raise RuntimeError where it cannot read or answer it."""


class Keep(Protocol):
    """Is given each text with what Z3 and cvc5 say of it."""

    def __call__(self, question: Question, label: Label, text: str, first: Said, second: Said) -> None: ...


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

    def __init__(self, second: Solver | None = None, keep: Keep | None = None) -> None:
        self._second, self._keep = second or cvc5_solver(proofs=keep is not None), keep
        self.certificate = Certificate((f"z3 {z3.get_version_string()}", f"cvc5 {cvc5_version()}"))

    def answers(self, question: Question) -> Answers:
        posed = question.pose()
        found: Answers = {}
        for label in posed.labels:
            text = posed.script(label)
            first = z3_of_text(text)
            second = self._said_by_the_second(question, text)
            found[label] = Answer(first.verdict(label), first.seconds)
            self.certificate.seconds += second.seconds
            self.certificate.opinions.append(Opinion(question.name, label, found[label].verdict, second.verdict(label)))
            if self._keep is not None:
                self._keep(question, label, text, first, second)
            if found[label].verdict == BROKEN and question.action is not None and label != POSSIBLE:
                self._judge(f"{question.name}: {label[0]}: {label[1]}", shows(question, posed, label))
        return found

    def _said_by_the_second(self, question: Question, text: str) -> Said:
        try:
            return self._second(text)
        except RuntimeError as error:  # cvc5 cannot read or answer the text
            self.certificate.errors.append(f"{question.name}: cvc5: {' '.join(str(error).split())}")
            return Said(UNKNOWN)

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


def z3_of_text(text: str, rlimit: int = RLIMIT) -> Said:
    """Z3's word for a text, which it reads in a context of its own."""
    solver = z3_solver(rlimit, z3.Context())
    begin = time.perf_counter()
    solver.from_string(text)
    word = checked(solver)
    return Said(word, solver.statistics().get_key_value("rlimit count"), time.perf_counter() - begin)


def cvc5_solver(*, proofs: bool = False) -> Solver:
    """cvc5's word for a text, with a proof of each unsat if asked. Raises SolverMissing where cvc5 is not installed."""
    try:
        import cvc5
    except ImportError as error:
        raise SolverMissing(f"--certify needs the solver cvc5, which is not installed: {INSTALL}") from error

    def of_text(text: str) -> Said:
        solver = cvc5.Solver(cvc5.TermManager())
        options = {"rlimit": str(CVC5_RLIMIT)} | (OF_PROOFS if proofs else {})
        for option, value in options.items():
            solver.setOption(option, value)
        begin = time.perf_counter()
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
        symbols = parser.getSymbolManager()
        word = ""
        while not (command := parser.nextCommand()).isNull():
            word += str(command.invoke(solver, symbols)).strip()
        proof = solver.proofToString(solver.getProof()[0], cvc5.ProofFormat.CPC) if proofs and word == "unsat" else b""
        seconds = time.perf_counter() - begin
        used = solver.getStatistics().get(True, True)["resource::resourceUnitsUsed"]["value"]
        return Said(word, used, seconds, unwrapped(proof.decode()))

    return of_text


OF_PROOFS = {
    "produce-proofs": "true",
    "proof-format-mode": "cpc",
    "proof-granularity": "dsl-rewrite",
    "proof-print-reference": "true",
}
"""Proofs in the calculus of cvc5, with each rewrite as a rule of its own, that name the terms of the question's file."""


def unwrapped(proof: str) -> str:
    """A checker reads the commands without the parentheses that cvc5 prints around them."""
    return proof.strip().removeprefix("(").removesuffix(")").strip()


# --- counterexamples ------------------------------------------------------------------------------------------------


def shows(question: Question, posed: Posed, label: Label) -> bool:
    """Z3's model of a denied goal, evaluated by the oracle: all was well before the step, and the goal fails after it."""
    solver = z3_solver()
    solver.add(*posed.assumptions, z3.Not(posed.goals[label]))
    if checked(solver) != "sat":
        return False
    action = question.action
    assert action is not None, question.name
    machine = question.machine or machine_of(action.name)
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
