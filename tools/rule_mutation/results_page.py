"""The results of the mutation test over the specification, as Markdown, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rule_mutation.mutant_results import Result, Told, listed
from rule_mutation.mutant_verdicts import (
    BY_PROOF,
    CHECKS,
    CONFORMANCE,
    EQUIVALENT,
    KILL_MATRIX,
    KILLED,
    NO_ANSWER,
    NO_MUTANT,
    NOT_JUDGED,
    SURVIVED,
)
from rule_mutation.mutants import Mutant
from rule_mutation.reviewed import REVIEWS, Review

ENOUGH = 0.97
"""The share of mutants that the proof alone must notice, of those that are not equivalent."""
TITLES = {"equivalent": "no mistake, as read by hand", "allowed": "another right rule", "missed": "missed"}


def named(mutant: Mutant) -> str:
    """How `reviewed.py` calls it, behind its path and function."""
    return f"{mutant.operator}: {mutant.original} -> {mutant.mutated}"


def told(mutants: Sequence[Mutant], results: dict[str, Result], words: Sequence[Review] = REVIEWS) -> Told:
    """Score, tables by kind of mistake and by module, and survivors, of mutants that were all judged."""
    mutants = [m for m in mutants if results[m.key]["outcome"] != NO_MUTANT]
    idle = [m for m in mutants if results[m.key]["outcome"] == NOT_JUDGED]
    judged = [m for m in mutants if m not in idle]
    word_on, complaints = _words_on(judged, results, words)
    real = [m for m in judged if _outcome(m, results, word_on) != EQUIVALENT]
    killed = [results[m.key] for m in real if results[m.key]["outcome"] == KILLED]
    by = Counter(result["by"] for result in killed)
    by_proof = sum(by[check] for check in BY_PROOF)
    if by_proof < ENOUGH * len(real):
        complaints.append(f"the proof alone notices {by_proof} of {len(real)} mutants: less than {ENOUGH:.0%}")

    without_answer = sum(str(result["detail"]).endswith(NO_ANSWER) for result in killed)

    def share(count: int) -> str:
        return f"{count} of {len(real)} ({100 * count / max(len(real), 1):.1f}%)"

    lines = [
        f"{len(judged)} mutants, {len(judged) - len(real)} of them equivalent. "
        f"Noticed by the proof alone: **{share(by_proof)}**.",
        "",
        f"Of these, {without_answer} are noticed because the solver gives no answer, which is no pass. "
        "Every other wrong lemma on pages has three rows that refute it.",
        "",
        f"- with the kill matrix: {share(by_proof + by[KILL_MATRIX])};",
        f"- with replays of right runs: {share(by_proof + by[KILL_MATRIX] + by[CONFORMANCE])};",
        f"- with the pinned numbers of states: {share(by.total())}.",
        "",
        *_table("mistake", judged, results, word_on, lambda m: m.operator),
        "",
        *_table("module", judged, results, word_on, lambda m: f"`{m.path}`"),
        "",
    ]
    if idle:
        functions = ", ".join(sorted({f"`{m.function}` of `{m.path}`" for m in idle}))
        lines += [f"Not judged, and not counted: {len(idle)} mutants that nothing runs: {functions}.", ""]
    return Told("\n".join([*lines, *_survivors(judged, results, word_on)]).rstrip(), complaints)


def _outcome(mutant: Mutant, results: dict[str, Result], word_on: dict[str, Review]) -> str:
    """What it is after it was read by hand."""
    return word_on[mutant.key].verdict if mutant.key in word_on else str(results[mutant.key]["outcome"])


Name = tuple[str, str, str]
"""A mutant as `reviewed.py` names it: path, function, what was changed."""


def _name_of(mutant: Mutant) -> Name:
    return mutant.path, mutant.function, named(mutant)


def _words_on(
    judged: Sequence[Mutant], results: dict[str, Result], words: Sequence[Review]
) -> tuple[dict[str, Review], list[str]]:
    """By key of each survivor what was found when it was read; and words that are missing, or on no survivor.

    Mutants at several places of a function can have one name. A word is on as many of them as it names.
    """
    by_name = {(word.path, word.function, name): word for word in words for name in word.mutants}
    read = Counter((word.path, word.function, name) for word in words for name in word.mutants)
    survived = {m.key: _name_of(m) for m in judged if results[m.key]["outcome"] == SURVIVED}
    word_on = {key: by_name[name] for key, name in survived.items() if name in by_name}
    count = Counter(survived.values())
    complaints = [f"survived, and reviewed.py has no word on it: {key}" for key in survived if key not in word_on]
    complaints += [
        f"reviewed.py: {count[name]} mutants survive that are called {' '.join(name)}, and {read[name]} were read"
        for name in sorted(by_name)
        if count[name] != read[name]
    ]
    return word_on, complaints


def _table(
    head: str,
    judged: Sequence[Mutant],
    results: dict[str, Result],
    word_on: dict[str, Review],
    group: Callable[[Mutant], str],
) -> list[str]:
    columns = [check for check in CHECKS if any(results[m.key]["by"] == check for m in judged)]
    lines = [f"| {head} | mutants | equivalent | {' | '.join(columns)} | survived |"]
    lines.append(f"| --- | {' | '.join('--:' for _ in range(len(columns) + 3))} |")
    for name in (*sorted({group(m) for m in judged}), None):
        some = [m for m in judged if name is None or group(m) == name]
        outcomes = Counter(_outcome(m, results, word_on) for m in some)
        by = Counter(results[m.key]["by"] for m in some if results[m.key]["outcome"] == KILLED)
        survived = len(some) - outcomes[EQUIVALENT] - by.total()
        cells = [len(some), outcomes[EQUIVALENT], *(by[check] for check in columns), survived]
        lines.append(f"| {name or '**all**'} | {' | '.join(str(cell or '') for cell in cells)} |")
    return lines


def _survivors(judged: Sequence[Mutant], results: dict[str, Result], word_on: dict[str, Review]) -> list[str]:
    lines: list[str] = []
    survived = [m for m in judged if results[m.key]["outcome"] == SURVIVED]
    if word_on:
        lines += [
            "Survivors, as they were read:",
            "",
            "| where | mutants | what it is | why |",
            "| --- | --- | --- | --- |",
        ]
    for word in dict.fromkeys(word_on[m.key] for m in survived if m.key in word_on):
        names = [named(m) for m in survived if word_on.get(m.key) == word]
        lines.append(f"| `{word.path}` `{word.function}` | {listed(names)} | {TITLES[word.verdict]} | {word.reason} |")
    unread = [m for m in survived if m.key not in word_on]
    if unread:
        lines += ["", "Survivors that nobody read yet:", ""]
        lines += [
            f"- `{m.path}:{m.line}` `{m.function}`, {listed([named(m)])}: {results[m.key]['detail']}" for m in unread
        ]
    return lines
