"""Small mistakes in the functions of a release, made in memory, and what the claims about these functions say of each.

Only statements that a claim runs are mutated: of others nothing is claimed. A mutant is asked of the claims that run its
statement, each with the rule that the release follows.
"""

from __future__ import annotations

import ast
import signal
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mutation.mistakes import Accused, Mistake, NotANumber, Numbers, mistakes
from rule_mutation.mutants import Mutant

from code_mutation.sameness import differing
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.conformance.code_proof.findings import followed_instead
from kvproof.model.code import arithmetic
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, check
from kvproof.model.code.source import Module, Sources, Tree
from kvproof.model.code.values import Known
from kvproof.model.symbolic import Symbols
from kvproof.spec.actions import Action

REFUTED, NOT_UNDERSTOOD, SURVIVED, NO_MUTANT = "refuted", "not understood", "survived", "no mutant"
SAME = "the same"
"""Proved to do what the function as it is does, in every state that the claims which run its statement assume."""
TELLING = frozenset({"logger", "logging"})
MOST_SECONDS = 120
"""Of CPU time, for one claim on one mutant. One that takes longer is not understood."""


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
    questions: int

    @property
    def name(self) -> str:
        return f"{self.claim.function} ({self.claim.name})"


def followed(tree: Tree, actions: Mapping[str, Action]) -> tuple[list[Followed], list[str]]:
    """The claims that are proved, those with the fewest questions first, and the names of those that are not: nothing can be
    asked of these."""
    sources, found, left_out = Sources(tree), [], []
    for claim in claims_of(sources, actions):
        verdict = check(claim, sources, LIBRARIES, GIVEN)
        is_proved, rule, as_claimed = verdict.verdict == PROVED, None, claim
        if verdict.verdict == DIFFERS and (other := followed_instead(sources, actions, verdict)) is not None:
            is_proved, (rule, as_claimed) = True, other
        if not is_proved:
            left_out.append(f"{claim.function} ({claim.name})")
            continue
        ran = frozenset((place.path, place.line) for path in verdict.paths for place in path.lines)
        found.append(Followed(as_claimed, rule, ran, verdict.questions))
    return sorted(found, key=lambda claim: claim.questions), left_out


@dataclass(frozen=True)
class Case:
    """A mutant, the text of its file, and the claims that run its statement, by their number."""

    mutant: Mutant
    text: str
    claims: tuple[int, ...]


def mutants_of(tree: Tree, claims: list[Followed]) -> list[Mutant]:
    """All mutants of statements that some claim runs, in the order of the source."""
    return [mistake.mutant for mistake, _ in _mistakes(tree, claims)]


def cases(tree: Tree, claims: list[Followed], wanted: Container[str]) -> Iterator[Case]:
    """Those mutants whose keys are wanted."""
    for mistake, asked in _mistakes(tree, claims):
        if mistake.mutant.key in wanted:
            yield Case(mistake.mutant, _with_function(tree.read(mistake.mutant.path) or "", mistake.function), asked)


def _with_function(source: str, function: ast.FunctionDef) -> str:
    """The text of a file with this text of one of its functions."""
    lines = source.splitlines(keepends=True)
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    text = textwrap.indent(ast.unparse(function), " " * function.col_offset)
    return "".join([*lines[: first - 1], text, "\n", *lines[function.end_lineno :]])


def _mistakes(tree: Tree, claims: list[Followed]) -> Iterator[tuple[Mistake, tuple[int, ...]]]:
    """With each the claims that run its statement."""
    for path in sorted({path for claim in claims for path, _ in claim.ran}):
        source = tree.read(path)
        assert source is not None
        lines = {line for claim in claims for at, line in claim.ran if at == path}
        module = Module(_module_of(path), path, source)
        run = {name for name, node in module.functions if lines & {*range(node.lineno, (node.end_lineno or 0) + 1)}}
        for mistake in mistakes(Accused(module.name, path, TELLING, run.__contains__, hides_text=True), source):
            at = (path, mistake.statement.lineno)
            asked = tuple(number for number, claim in enumerate(claims) if at in claim.ran)
            if asked:
                yield mistake, asked


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def judged(sources: Sources, case: Case, claims: list[Followed]) -> dict[str, Any]:
    """`outcome`, and `by`: the claim that is refuted, or that is not understood where none is refuted. Of one that survives
    `where`: all that is not the same as without the mistake."""
    numbers = SymbolicNumbers()
    helpers = {f"{case.mutant.module}.{name}": Known(name, call) for name, call in numbers.names.items()}
    given, path = {**GIVEN, **helpers}, case.mutant.path
    mutated = Mutated(sources.tree, path, case.text)
    open_ones: list[str] = []
    places: set[str] = set()
    try:
        for asked in (claims[number] for number in case.claims):
            verdict, where = _in_time(partial(_of_claim, asked.claim, sources, mutated, path, given))
            if verdict == DIFFERS:
                return {"outcome": REFUTED, "by": asked.name}
            open_ones += [asked.name] if verdict != PROVED else []
            places |= where
    except NotANumber:
        return {"outcome": NO_MUTANT}
    if any(name in case.text for name in numbers.names) and not numbers.seen:
        return {"outcome": NO_MUTANT}
    if open_ones:
        return {"outcome": NOT_UNDERSTOOD, "by": open_ones[0]}
    return {"outcome": SURVIVED, "where": sorted(places)} if places else {"outcome": SAME}


def _of_claim(
    claim: Claim, sources: Sources, mutated: Tree, path: str, given: Mapping[str, Any]
) -> tuple[str, set[str]]:
    """The verdict, and where a function that the claim holds for differs from the one without the mistake."""
    verdict = check(claim, sources.with_text(mutated, path), LIBRARIES, given, to_the_first_difference=True).verdict
    is_held = verdict == PROVED
    return verdict, differing(claim, sources, sources.with_text(mutated, path), given) if is_held else set()


class _LateError(BaseException):
    pass


def _in_time(ask: Callable[[], tuple[str, set[str]]]) -> tuple[str, set[str]]:
    def late(signum: int, frame: object) -> None:
        raise _LateError

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        return ask()
    except _LateError:
        return NOT_UNDERSTOOD, set()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
