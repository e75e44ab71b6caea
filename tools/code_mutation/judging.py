"""Small mistakes in the functions of a release, made in memory, and what the claims about these functions say of each.

Only statements that a claim runs are mutated: of others nothing is claimed. A mutant is asked of the claims that run its
statement, each with the rule that the release follows.
"""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mutation.mistakes import Accused, NotANumber, Numbers, mistakes
from rule_mutation.mutants import Mutant

from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.conformance.code_proof.findings import followed_instead
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, check
from kvproof.model.code.source import Sources, Tree
from kvproof.model.code.values import Known
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action

REFUTED, NOT_UNDERSTOOD, SURVIVED, NO_MUTANT = "refuted", "not understood", "survived", "no mutant"
TELLING = frozenset({"logger", "logging"})
MOST_SECONDS = 120
"""For one mutant. One that takes longer is not understood."""


@dataclass(frozen=True)
class Mutated:
    """A tree with another text in one file."""

    tree: Tree
    path: str
    text: str

    @property
    def name(self) -> str:
        return self.tree.name

    def read(self, path: str) -> str | None:
        return self.text if path == self.path else self.tree.read(path)


class SymbolicNumbers(Numbers):
    """What the mutated code calls, on numbers of the proof."""

    def _shifted(self, value: Any, by: int) -> Any:
        return value if value is None else arithmetic.add(Symbols(), self._number(value), by)

    def _number(self, value: Any) -> Any:
        if isinstance(value, bool) or not arithmetic.is_number(value):
            raise NotANumber
        self.seen = True
        return value

    def _negative(self, value: Any) -> Any:
        return arithmetic.negative(Symbols(), self._number(value))


@dataclass(frozen=True)
class Followed:
    """A claim that is proved of the release as it is. `rule`: the fault or the design by which it is, if by one."""

    claim: Claim
    rule: str | None
    ran: frozenset[tuple[str, int]]
    """Path and line of each statement that some path runs."""

    @property
    def name(self) -> str:
        return f"{self.claim.function} ({self.claim.name})"


def followed(tree: Tree, actions: Mapping[str, Action]) -> tuple[list[Followed], list[str]]:
    """The claims that are proved, and the names of those that are not: nothing can be asked of these."""
    sources, found, left_out = Sources(tree), [], []
    for claim in claims_of(sources, actions):
        rule, as_claimed, verdict = None, claim, check(claim, sources, LIBRARIES, GIVEN)
        if verdict.verdict == DIFFERS and (other := followed_instead(sources, actions, claim.name)) is not None:
            rule, as_claimed, verdict = other
        if verdict.verdict != PROVED:
            left_out.append(f"{claim.function} ({claim.name})")
            continue
        ran = frozenset((place.path, place.line) for path in verdict.paths for place in path.lines)
        found.append(Followed(as_claimed, rule, ran))
    return found, left_out


@dataclass(frozen=True)
class Case:
    """A mutant, the text of its file, and the claims that run its statement, by their number."""

    mutant: Mutant
    text: str
    claims: tuple[int, ...]


def cases(tree: Tree, claims: list[Followed]) -> Iterator[Case]:
    """All mutants of statements that some claim runs, in the order of the source."""
    for path in sorted({path for claim in claims for path, _ in claim.ran}):
        source = tree.read(path)
        assert source is not None
        accused = Accused(_module_of(path), path, TELLING, hides_text=True)
        for mistake in mistakes(accused, source):
            at = (path, mistake.statement.lineno)
            asked = tuple(number for number, claim in enumerate(claims) if at in claim.ran)
            if asked:
                yield Case(mistake.mutant, ast.unparse(mistake.tree), asked)


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def judged(tree: Tree, case: Case, claims: list[Followed]) -> dict[str, Any]:
    """`outcome`, and `by`: the claim that is refuted, or that is not understood where none is refuted."""
    numbers = SymbolicNumbers()
    helpers = {f"{case.mutant.module}.{name}": Known(name, call) for name, call in numbers.names.items()}
    mutated = Mutated(tree, case.mutant.path, case.text)
    open_ones = []
    try:
        for number in case.claims:
            said = _verdict(claims[number].claim, mutated, helpers)
            if said == DIFFERS:
                return {"outcome": REFUTED, "by": claims[number].name}
            if said != PROVED:
                open_ones.append(claims[number].name)
    except NotANumber:
        return {"outcome": NO_MUTANT}
    if any(name in case.text for name in numbers.names) and not numbers.seen:
        return {"outcome": NO_MUTANT}
    return {"outcome": NOT_UNDERSTOOD, "by": open_ones[0]} if open_ones else {"outcome": SURVIVED}


class _LateError(BaseException):
    pass


def _verdict(claim: Claim, tree: Tree, helpers: Mapping[str, Any]) -> str:
    def late(signum: int, frame: object) -> None:
        raise _LateError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    try:
        given = {**GIVEN, **helpers}
        return check(claim, Sources(tree), LIBRARIES, given, to_the_first_difference=True).verdict
    except _LateError:
        return NOT_UNDERSTOOD
    finally:
        signal.alarm(0)
