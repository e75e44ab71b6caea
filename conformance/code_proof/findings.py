"""What is said of one function of the code: its verdict, and of each difference one path in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kvproof.conformance.adapters.sglang.code.functions import LIBRARIES, instead_of
from kvproof.conformance.code_proof.engines import GIVEN, claims_of
from kvproof.conformance.replay.ledger_words import action_in_words, changes
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, Difference, Failing, Path, Verdict, check, follows_instead
from kvproof.model.code.reached import Reached, SmallRuns, reached
from kvproof.model.code.rests_on import Shifts, parts_of
from kvproof.model.code.source import Sources
from kvproof.model.explore import Taken
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.profiles import Profile

KNOWN_FAULT = "known fault"


@dataclass(frozen=True)
class Line:
    """A line that a path ran: where, its text, the conditions that it asked with their answers, and what it set."""

    path: str
    line: int
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """An action of a run: its parameters, and in words what it changed."""

    action: str
    params: dict[str, bool | int]
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return action_in_words(self.action, self.params)


@dataclass(frozen=True)
class Shown:
    """A difference in one state. `state`: the ledger before, lengths in tokens; P is the page size.

    `schedule`: a run of the rules from nothing, whose last action begins in this state. Without one the state is any that the
    invariants allow: no run was found that leads to one in which the sentence is not so.
    """

    sentence: str
    code: str
    rule: str
    state: dict[str, bool | int]
    lines: tuple[Line, ...]
    schedule: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The verdict on one function, as data.

    `rule`: the name of the claim, which is that of the action whose rule the function must follow, or of a part of it.
    `instead`: the fault or the design that it follows where it differs.
    `open`: where paths are not understood, or the solver gave up. `ran`: the functions that the paths run, by file and name.
    """

    function: str
    rule: str
    path: str | None
    line: int | None
    verdict: str
    instead: str | None = None
    differences: tuple[Shown, ...] = ()
    open: tuple[str, ...] = ()
    paths: int = 0
    cut: int = 0
    questions: int = 0
    seconds: float = 0.0
    assumes: tuple[str, ...] = ()
    understood: int = 0
    """Paths of which each statement has a meaning."""
    ran: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    """What was read for it, by file and name (`model/code/rests_on.py`)."""

    @property
    def file_name(self) -> str:
        """The rule as a name of files and anchors: `close, slot` is close-slot."""
        return re.sub(r"\W+", "-", self.rule)

    @property
    def is_known_fault(self) -> bool:
        return self.verdict == KNOWN_FAULT


def names_of(sources: Sources, profile: Profile | None) -> list[str]:
    return [claim.name for claim in claims_of(sources, actions_of(profile))]


def find(sources: Sources, profile: Profile | None, name: str, runs: SmallRuns | None = None) -> Finding:
    """The finding on the function whose rule has the name. `runs`: of the same rules, in which one is looked for that leads to a
    difference; None: none is."""
    actions = actions_of(profile)
    claim = _claim(sources, actions, name)
    verdict = check(claim, sources, LIBRARIES, GIVEN)
    other = followed_instead(sources, actions, verdict) if verdict.verdict == DIFFERS else None
    instead = other[0] if other is not None else None
    is_known = instead is not None and profile is not None and instead in profile.deviations
    return Finding(
        claim.function,
        name,
        verdict.place.path if verdict.place is not None else None,
        verdict.place.line if verdict.place is not None else None,
        KNOWN_FAULT if is_known else verdict.verdict,
        instead,
        tuple(
            _shown(sources, verdict, reached(verdict, runs) if runs is not None and verdict.verdict == DIFFERS else {})
        ),
        tuple(_open(verdict)),
        len(verdict.paths),
        verdict.cut,
        verdict.questions,
        verdict.seconds,
        claim.assumes,
        sum(path.understood for path in verdict.paths),
        tuple(sorted(_ran(sources, verdict))),
        tuple(sorted(parts_of(sources))),
    )


def moved(finding: Finding, shifts: Shifts) -> Finding:
    """The finding on functions that stand on other lines by now."""

    def line(path: str | None, number: int) -> int:
        spans = shifts.get(path or "", [])
        return number + next((by for first, last, by in spans if first <= number <= last), 0)

    def shown(found: Shown) -> Shown:
        return replace(found, lines=tuple(replace(at, line=line(at.path, at.line)) for at in found.lines))

    begin = line(finding.path, finding.line) if finding.line is not None else None
    return replace(finding, line=begin, differences=tuple(map(shown, finding.differences)))


def _ran(sources: Sources, verdict: Verdict) -> set[str]:
    places = {(place.path, place.line) for path in verdict.paths for place in path.lines}
    return {f"{path}:{name}" for path, line in places if (name := sources.function_at(path, line)) is not None}


def actions_of(profile: Profile | None) -> Mapping[str, Action]:
    """The rules that the functions must follow."""
    return profile.actions if profile is not None else ACTIONS


def small_runs(profile: Profile | None) -> SmallRuns:
    """Of the same rules, for `find`. Those that one search explored are there for the next."""
    return SmallRuns(actions_of(profile))


def _claim(sources: Sources, actions: Mapping[str, Action], name: str) -> Claim:
    return next(claim for claim in claims_of(sources, actions) if claim.name == name)


def followed_instead(sources: Sources, actions: Mapping[str, Action], differs: Verdict) -> tuple[str, Claim] | None:
    """The first fault or design that the function follows on every path, with the claim that says so."""
    for label, others in instead_of(differs.claim.rests_on):
        claim = _claim(sources, {**actions, **others}, differs.claim.name)
        follows = follows_instead(differs, claim)
        if follows is None:
            follows = check(claim, sources, LIBRARIES, GIVEN, to_the_first_difference=True).verdict == PROVED
        if follows:
            return label, claim
    return None


def _open(verdict: Verdict) -> Iterator[str]:
    """Why there is no verdict, each reason once."""
    said = [
        f"{path.place}: {path.ended.removeprefix('not understood: ')}" for path in verdict.paths if not path.understood
    ]
    said += [f"the solver gave up: {d.sentence}" for p in verdict.paths for d in p.differences if d.verdict != DIFFERS]
    said += [f"{verdict.cut} branches were not followed: there are too many paths"] if verdict.cut else []
    if verdict.place is not None and not verdict.paths:
        said.append("no state that the invariants allow comes here")
    yield from dict.fromkeys(said)


def _shown(sources: Sources, verdict: Verdict, after_run: Mapping[str, Reached]) -> Iterator[Shown]:
    """Each sentence that fails: where a run of the rules shows it, those with the shortest first, else on its shortest path."""
    for found in sorted(after_run.values(), key=lambda found: len(found.steps)):
        yield _in_state(sources, found.path, found.difference, found.steps)
    for sentence, (path, failing) in _shortest(verdict).items():
        if sentence not in after_run:
            yield _in_state(sources, path, failing.small_difference())


def _shortest(verdict: Verdict) -> dict[str, tuple[Path, Failing]]:
    """Of each sentence that fails, the shortest path on which it does."""
    shortest: dict[str, tuple[Path, Failing]] = {}
    for path in verdict.paths:
        for failing in (difference.failing for difference in path.differences if difference.failing is not None):
            known = shortest.get(failing.sentence)
            if known is None or len(path.lines) < len(known[0].lines):
                shortest[failing.sentence] = path, failing
    return shortest


def _in_state(sources: Sources, path: Path, difference: Difference, steps: tuple[Taken, ...] = ()) -> Shown:
    calls = tuple(
        Call(taken.outcome.action.name, taken.params, tuple(changes(taken.outcome.before, taken.outcome.after)))
        for taken in steps
    )
    lines = tuple(_lines(sources, path, difference))
    return Shown(difference.sentence, difference.code, difference.rule, dict(difference.state), lines, calls)


def _lines(sources: Sources, path: Path, difference: Difference) -> Iterator[Line]:
    answers: dict[str, list[str]] = {}
    for branch in path.branches:
        if branch.place is not None and branch.expression:
            answers.setdefault(str(branch.place), []).append(f"{branch.expression}: {'yes' if branch.taken else 'no'}")
    for number, place in enumerate(path.lines):
        notes = [f"{name} = {value}" for at, name, value in difference.values if at == number]
        notes += answers.pop(str(place), [])
        yield Line(place.path, place.line, sources.line(place.path, place.line), tuple(notes))


def word_of(finding: Finding) -> str:
    """The verdict as people read it."""
    return f"{KNOWN_FAULT} {finding.instead}" if finding.is_known_fault else finding.verdict


def in_full(finding: Finding) -> str:
    """The same, with the fault or the design that a function follows where it differs."""
    follows = finding.verdict == DIFFERS and finding.instead is not None
    return f"{word_of(finding)}{f': exactly {finding.instead}' if follows else ''}"
