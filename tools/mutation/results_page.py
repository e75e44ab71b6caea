"""The tables of a mutation test over what is under test, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rule_mutation.mutant_results import Result, Told, listed
from rule_mutation.mutants import Mutant

from mutation.reviewed import ALLOWED, MISSED, REVIEWS, Review
from mutation.runs import CHECKS, COLUMNS
from mutation.subjects import Subject
from mutation.verdicts import EQUIVALENT, KILLED, NO_MUTANT, SURVIVED

ENOUGH = 0.95


def named(mutant: Mutant) -> str:
    """How the page and `reviewed.py` call it, behind its path and function."""
    return mutant.key.partition(f"{mutant.path} {mutant.function} ")[2]


def report(
    subject: Subject,
    everything: Sequence[Mutant],
    asked_for: Sequence[Mutant],
    results: dict[str, Result],
    head: Sequence[str],
    words: Sequence[Review] = REVIEWS,
) -> Told:
    judged = [m for m in asked_for if m.key in results and results[m.key]["outcome"] != NO_MUTANT]
    no_mutants = sum(1 for m in asked_for if results.get(m.key, {}).get("outcome") == NO_MUTANT)
    of_subject = [word for word in words if word.path in {accused.path for accused in subject.accused}]
    by_name = {(word.path, word.function, name): word for word in of_subject for name in word.mutants}
    complaints: list[str] = []
    final: dict[str, str] = {}
    word_on: dict[str, Review] = {}
    for mutant in judged:
        outcome = str(results[mutant.key]["outcome"])
        word = by_name.get((mutant.path, mutant.function, named(mutant)))
        if word is not None and outcome == KILLED:
            complaints.append(f"reviewed.py has a word on a mutant that is noticed: {mutant.key}")
        if word is not None and outcome == SURVIVED:
            outcome, word_on[mutant.key] = word.verdict, word
        elif outcome == SURVIVED:
            complaints.append(f"survived, and reviewed.py has no word on it: {mutant.key}")
        final[mutant.key] = outcome
    known = {(m.path, m.function, named(m)) for m in everything}
    complaints += [f"reviewed.py: no mutant is called {' '.join(name)}" for name in by_name if name not in known]
    matter = [m for m in judged if final[m.key] not in (EQUIVALENT, ALLOWED)]
    killed = sum(1 for m in matter if final[m.key] == KILLED)
    differing = sum(1 for m in judged if final[m.key] != EQUIVALENT)
    if killed < ENOUGH * differing:
        complaints.append(f"{killed} of {differing} were noticed: fewer than {ENOUGH:.0%}")
    waiting = sum(1 for m in asked_for if m.key not in results)
    if waiting:
        complaints.append(f"{waiting} are not judged yet")
    counted = Counter(final.values())
    by_file, by_function = ("file", lambda m: m.path), ("function", lambda m: m.function)
    place, of_place = by_file if len(subject.accused) > 1 else by_function
    lines = [
        *head,
        "",
        f"{len(everything)} changes can be made in all, {len(judged) + no_mutants} were tried; {no_mutants} of these shifted no "
        f"number, and are no mutants. Of {len(judged)} mutants {counted[EQUIVALENT]} are equivalent, and {counted[ALLOWED]} do "
        "another thing that every rule and policy allows.",
        "",
        f"- noticed: **{_share(killed, len(matter))}** of those that break something;",
        f"- {_share(killed, differing)} of all that are not equivalent, the allowed ones among them;",
        f"- {_share(_by_checks(judged, results), len(matter))} by a check, the others by a crash or a hang.",
        "",
        *_table("mistake", judged, results, final, lambda m: m.operator),
        "",
        *_table(place, judged, results, final, of_place),
        "",
        *_without_model(judged, results),
        *_survivors(judged, final, word_on),
    ]
    return Told("\n".join(lines).rstrip(), complaints)


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / max(of, 1):.1f}%)"


def _by_checks(judged: Sequence[Mutant], results: dict[str, Result]) -> int:
    return sum(1 for m in judged if results[m.key].get("by") in CHECKS)


def _table(
    head: str,
    judged: Sequence[Mutant],
    results: dict[str, Result],
    final: dict[str, str],
    group: Callable[[Mutant], str],
) -> list[str]:
    columns = ("mutants", "equivalent", "allowed", *COLUMNS, "missed")
    lines = [f"| {head} | {' | '.join(columns)} |", f"| --- | {' | '.join('--:' for _ in columns)} |"]
    groups = sorted({group(m) for m in judged})
    for name in [*groups, None]:
        some = [m for m in judged if name is None or group(m) == name]
        outcomes = Counter(final[m.key] for m in some)
        by = Counter(results[m.key]["by"] for m in some if final[m.key] == KILLED)
        cells = [len(some), outcomes[EQUIVALENT], outcomes[ALLOWED], *(by[c] for c in COLUMNS)]
        cells.append(outcomes[MISSED] + outcomes[SURVIVED])
        lines.append(f"| {name or '**all**'} | {' | '.join(str(cell or '') for cell in cells)} |")
    return lines


def _without_model(judged: Sequence[Mutant], results: dict[str, Result]) -> list[str]:
    """What notices the mutants in these runs when the model is not asked."""
    of_model = [results[m.key] for m in judged if results[m.key].get("by") == CHECKS[0]]
    if not of_model:
        return []
    by = Counter(result["without_model"] or "nothing" for result in of_model)
    words = ", ".join(f"{name} {count}" for name, count in by.most_common())
    return [
        f"The {len(of_model)} runs that the model stopped, played once more without it, are stopped by: {words}.",
        "",
    ]


def _survivors(judged: Sequence[Mutant], final: dict[str, str], word_on: dict[str, Review]) -> list[str]:
    lines: list[str] = []
    unread = [m for m in judged if final[m.key] == SURVIVED]
    titles = {MISSED: "Missed", ALLOWED: "Allowed", EQUIVALENT: "Equivalent, as read by hand"}
    for verdict, title in titles.items():
        some = [m for m in judged if m.key in word_on and final[m.key] == verdict]
        if some:
            lines += [f"### {title}", "", "| where | mutants | why |", "| --- | --- | --- |"]
            for word in dict.fromkeys(word_on[m.key] for m in some):
                names = [named(m) for m in some if word_on[m.key] == word]
                lines.append(f"| `{word.path}` `{word.function}` | {listed(names)} | {word.reason} |")
            lines.append("")
    if unread:
        lines += ["### Survived, and not read yet", ""]
        lines += [f"- `{m.path}` `{m.function}`, {listed([named(m)])}" for m in unread]
    return lines
