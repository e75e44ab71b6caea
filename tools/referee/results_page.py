"""What came of all cases, as the generated part of docs/referee.md: what is not found comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from referee.cases import Case, Variant
from referee.judging import Verdict


@dataclass(frozen=True)
class Told:
    """The page's text, and the names of the cases that did not come out as they must."""

    text: str
    wrong: tuple[str, ...]


def report(cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> Told:
    """The counts, what is not found, harmless cases that did not pass, then each case by topic."""
    wrong = [case for case in cases if not verdicts[case.name].is_right(case)]
    missed, refused = [c for c in wrong if c.harmful], [c for c in wrong if not c.harmful]
    lines = [
        "| | variants of rules | edits of traces | all |",
        "| --- | --: | --: | --: |",
        _counts("harmful, found", [c for c in cases if c.harmful], verdicts),
        _counts("harmless, passed", [c for c in cases if not c.harmful], verdicts),
        "",
        "| topic | cases of | as they must be |",
        "| --- | --- | --: |",
        *_topics(cases, verdicts),
        "",
        *_section("Harmful, and NOT FOUND", missed, verdicts, "Nothing: every harmful case is found."),
        *_section("Harmless, and NOT PASSED", refused, verdicts, "Nothing: every harmless case passes."),
    ]
    for subject in (True, False):
        lines += ["## Variants of rules" if subject else "## Edits of traces", ""]
        ours = [case for case in cases if isinstance(case, Variant) is subject]
        for topic in dict.fromkeys(case.topic for case in ours):
            some = [case for case in ours if case.topic == topic]
            right = sum(verdicts[case.name].is_right(case) for case in some)
            title = f"{topic[0].upper()}{topic[1:]}"
            lines += [f"### {title}", "", f"{right} of {len(some)} as they must be.", "", *_table(some, verdicts), ""]
    return Told("\n".join(lines).rstrip(), tuple(case.name for case in wrong))


def _counts(name: str, cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> str:
    def count(some: Sequence[Case]) -> str:
        return f"{sum(verdicts[c.name].is_right(c) for c in some)} of {len(some)}"

    variants = [c for c in cases if isinstance(c, Variant)]
    edits = [c for c in cases if not isinstance(c, Variant)]
    return f"| {name} | {count(variants)} | {count(edits)} | **{count(cases)}** |"


def _topics(cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> list[str]:
    lines = []
    for is_of_rules, topic in dict.fromkeys((isinstance(case, Variant), case.topic) for case in cases):
        some = [case for case in cases if (isinstance(case, Variant), case.topic) == (is_of_rules, topic)]
        right = sum(verdicts[case.name].is_right(case) for case in some)
        lines.append(f"| {topic} | {'rules' if is_of_rules else 'traces'} | {right} of {len(some)} |")
    return lines


def _section(title: str, cases: Sequence[Case], verdicts: Mapping[str, Verdict], none: str) -> list[str]:
    return [f"## {title}: {len(cases)}", "", *(_table(cases, verdicts) if cases else [none]), ""]


def _table(cases: Sequence[Case], verdicts: Mapping[str, Verdict]) -> list[str]:
    lines = ["| case | of | reason | must be found by | verdict | found by |", "| --- " * 6 + "|"]
    for case in cases:
        verdict = verdicts[case.name]
        said = verdict.verdict if verdict.is_right(case) else f"**{verdict.verdict}**"
        cells = (f"`{case.name}`", f"`{_subject(case)}`", case.why, case.must or "nothing", said, verdict.by)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def _subject(case: Case) -> str:
    """The actions that are replaced, or the trace that is edited."""
    return ", ".join(case.rules) if isinstance(case, Variant) else str(vars(case)["base"])
