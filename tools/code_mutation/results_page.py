"""The tables of the mutation test of the proof of code, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mutation.results_page import named
from mutation.review import EQUIVALENT, MISSED, Review
from rule_mutation.mutant_results import Result, Told
from rule_mutation.mutants import Mutant

from code_mutation.judging import NO_MUTANT, NOT_UNDERSTOOD, REFUTED, SAME, SURVIVED
from code_mutation.reviewed import OUTSIDE, PLACES

ENOUGH = 0.97
COLUMNS = ("mutants", SAME, EQUIVALENT, OUTSIDE, REFUTED, NOT_UNDERSTOOD, MISSED, SURVIVED)


def report(
    mutants: Sequence[Mutant],
    results: dict[str, Result],
    head: Sequence[str],
    words: Sequence[Review],
    places: Mapping[str, str] = PLACES,
) -> Told:
    """`words`: on mutants that survive, what they are as read by hand. `places`: what a mutant may change that no claim is about.
    A survivor that has no word counts as missed."""
    by_name = {(word.function, name): word for word in words for name in word.mutants}
    known = [m for m in mutants if m.key in results]
    ours = [m for m in known if results[m.key]["outcome"] != NO_MUTANT]
    final: dict[str, str] = {}
    word_on: dict[str, Review] = {}
    complaints = [f"{len(mutants) - len(known)} are not judged yet"] if len(known) < len(mutants) else []
    for mutant in ours:
        outcome = str(results[mutant.key]["outcome"])
        word = by_name.pop((mutant.function, named(mutant)), None)
        if outcome == SURVIVED and word is None:
            word = _by_places(mutant, results[mutant.key].get("where", []), places)
        if outcome == SURVIVED and word is not None:
            outcome, word_on[mutant.key] = word.verdict, word
        elif outcome == SURVIVED:
            complaints.append(f"survived, and reviewed.py has no word on it: {mutant.key}")
        elif word is not None:
            complaints.append(f"reviewed.py has a word on a mutant that is noticed: {mutant.key}")
        final[mutant.key] = outcome
    complaints += [f"reviewed.py: no mutant is called {' '.join(name)}" for name in by_name]
    counted = Counter(final.values())
    differing = len(ours) - counted[SAME] - counted[EQUIVALENT]
    matter = differing - counted[OUTSIDE]
    noticed = counted[REFUTED] + counted[NOT_UNDERSTOOD]
    if noticed < ENOUGH * matter:
        complaints.append(f"{noticed} of {matter} were noticed: fewer than {ENOUGH:.0%}")
    lines = [
        *head,
        "",
        f"{len(known)} changes were tried; {len(known) - len(ours)} of these shift no number, and are no mutants. Of "
        f"{len(ours)} mutants {counted[SAME]} are proved to do the same as the unmutated function, {counted[EQUIVALENT]} are "
        f"equivalent as read by hand, and {counted[OUTSIDE]} change what no claim is about.",
        "",
        f"- refuted or not understood: **{_share(noticed, matter)}** of those that change what claims are about;",
        f"- {_share(noticed, differing)} of all that are not equivalent, those outside of the claims among them;",
        f"- refuted, with a state in numbers: {_share(counted[REFUTED], matter)}.",
        "",
        *_table("mistake", ours, final, lambda m: m.operator),
        "",
        *_table("function", ours, final, lambda m: m.function),
        "",
        *_listed("Missed", [m for m in ours if final[m.key] == MISSED], word_on),
        *_listed("Outside of what is claimed", [m for m in ours if final[m.key] == OUTSIDE], word_on),
        *_listed("Equivalent, as read by hand", [m for m in ours if final[m.key] == EQUIVALENT], word_on),
        *_listed("Survived, and not read yet", [m for m in ours if final[m.key] == SURVIVED], word_on),
    ]
    return Told("\n".join(lines).rstrip(), complaints)


def _by_places(mutant: Mutant, where: Sequence[str], places: Mapping[str, str]) -> Review | None:
    """The word on a mutant that differs in nothing but places that no claim is about."""
    reasons = [places.get(place.rpartition(".")[2]) for place in where]
    if not reasons or None in reasons:
        return None
    said = " ".join(dict.fromkeys(reason for reason in reasons if reason is not None))
    return Review(mutant.path, mutant.function, (named(mutant),), OUTSIDE, said)


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / max(of, 1):.1f}%)"


def _table(head: str, mutants: Sequence[Mutant], final: dict[str, str], group: Callable[[Mutant], str]) -> list[str]:
    lines = [f"| {head} | {' | '.join(COLUMNS)} |", f"| --- | {' | '.join('--:' for _ in COLUMNS)} |"]
    for name in [*sorted({group(m) for m in mutants}), None]:
        some = [m for m in mutants if name is None or group(m) == name]
        outcomes = Counter(final[m.key] for m in some)
        cells = [len(some), *(outcomes[column] for column in COLUMNS[1:])]
        lines.append(f"| {name or '**all**'} | {' | '.join(str(cell or '') for cell in cells)} |")
    return lines


def _listed(title: str, mutants: Sequence[Mutant], word_on: dict[str, Review]) -> list[str]:
    if not mutants:
        return []
    lines = [f"### {title}", "", "| function | mutants | why |", "| --- | --- | --- |"]
    rows: dict[tuple[str, str], list[str]] = {}
    for mutant in mutants:
        reason = word_on[mutant.key].reason if mutant.key in word_on else ""
        rows.setdefault((mutant.function, reason), []).append(f"`{named(mutant)}`")
    lines += [f"| `{function}` | {'; '.join(names)} | {reason} |" for (function, reason), names in rows.items()]
    return [*lines, ""]
