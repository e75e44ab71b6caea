"""The bench that mutants are judged on: the runs, what each says without a mutant, the lines that each comes to, and what was
judged so far.

Results are kept: a run that was stopped continues, and starts anew when a source changed that a verdict depends on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rule_mutation.edits import text_of
from rule_mutation.mutant_results import Result, digest_of_modules, load, save
from rule_mutation.mutants import Mutant

from kvproof.conformance.compiled.choose import AUTO
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.judging import Unjudged, judging_by
from mutation import in_place
from mutation.mistakes import Mistake, mistakes
from mutation.runs import Run, can_be_played
from mutation.subjects import Subject, twins
from mutation.verdicts import EQUIVALENT, NOT_RUN, SAME_CODE, SURVIVED, Case, Plan, judged

SAVE_EVERY = 20
"""Verdicts."""
DEPENDS_ON = (
    "kvproof.spec",
    "kvproof.impl",
    "kvproof.kernels",
    "kvproof.conformance.fuzz",
    "kvproof.conformance.compiled",
    "kvproof.conformance.replay",
    "policies",
)
LONG = 3600.0
"""Seconds of a campaign that are many: the compiled checker pays."""


def mistakes_of(subject: Subject) -> Iterator[Mistake]:
    for accused in subject.accused:
        yield from mistakes(accused, in_place.source_of(accused))


class Bench:
    """Everything that judges the mutants of one subject."""

    def __init__(self, subject: Subject, seed: int, schedules: int, with_a_model: int, console: Console) -> None:
        self.subject = subject
        self.files = {str(in_place.module_of(accused).__file__) for accused in subject.accused}
        new_judging = judging_by(AUTO, LONG)
        runs, told, self.lines = list[Run](), list[str](), list[set[tuple[str, int]]]()
        known: dict[int, str] = {}
        for run in subject.runs(seed, schedules, with_a_model):
            passed = can_be_played(run, new_judging)
            if passed is None:
                continue  # its settings cannot work
            if passed.trouble is not None:
                if not subject.has_findings:
                    raise UserError(f"{run.name} finds something without a mutant: {passed.trouble.sentence}")
                again = can_be_played(run, new_judging)
                if again is None or again.trouble is None or again.trouble.signature != passed.trouble.signature:
                    continue  # not the same each time: another finding would say nothing
                known[len(runs)] = passed.trouble.signature
            runs.append(run)
            told.append(passed.told)
            if not subject.has_threads:
                self.lines.append(in_place.lines_of(self.files, lambda run=run: run.play(Unjudged)))  # type: ignore[misc]
        both = list(zip(runs, self.lines, strict=False))
        others = set[tuple[str, int]]().union(*(found for run, found in both if not run.about))
        self.own_lines = [found - others if run.about else found for run, found in both]
        self.plan = Plan(runs, told, new_judging, twins(), known)
        console.print(
            f"{len(runs)} runs; without a mutant {len(runs) - len(known)} find nothing, {len(known)} what is known"
        )

    def digest(self) -> str:
        """Of all that a verdict depends on. Not of what makes the runs: a mutant that was noticed stays so when runs are added,
        and one that survived fewer runs than there are now is judged again."""
        return digest_of_modules([*DEPENDS_ON, *(accused.module for accused in self.subject.accused)])

    def cases(self, wanted: set[str], results: dict[str, Result]) -> Iterator[Case]:
        """Those that have to be run. What needs no run, because nothing differs or nothing comes there, is judged here."""
        for accused in self.subject.accused:
            file = str(in_place.module_of(accused).__file__)
            for mistake in mistakes(accused, in_place.source_of(accused)):
                key = mistake.mutant.key
                if key not in wanted:
                    continue
                function = in_place.live_function(accused, mistake.mutant.function, mistake.function)
                code = in_place.mutated_code(function, mistake.function, mistake.tree)
                if in_place.is_same(code, function.__code__):
                    results[key] = {"outcome": EQUIVALENT, "detail": SAME_CODE}
                    continue
                runs = self._runs_to(file, mistake)
                if not runs:
                    results[key] = {"outcome": SURVIVED, "runs": 0, "of": len(self.plan.runs), "detail": NOT_RUN}
                    continue
                yield Case(key, function, code, runs)

    def _runs_to(self, file: str, mistake: Mistake) -> list[int]:
        """The runs that come to one of its lines; all, where that was not seen."""
        runs = self.plan.runs
        if self.subject.has_threads:
            return list(range(len(runs)))
        span, said = range(mistake.statement.lineno, mistake.mutant.line + 1), text_of(mistake.statement)
        return [
            number
            for number, run in enumerate(runs)
            if any((file, line) in self._lines_for(number, run, said) for line in span)
        ]

    def _lines_for(self, number: int, run: Run, said: str) -> set[tuple[str, int]]:
        return self.lines[number] if run.about and run.about in said else self.own_lines[number]


def judge(bench: Bench, mutants: Sequence[Mutant], path: Path, jobs: int, console: Console) -> dict[str, Result]:
    """All of these, those of an earlier run included."""
    digest = bench.digest()
    results = load(path, digest)
    of = len(bench.plan.runs)
    results = {key: one for key, one in results.items() if one["outcome"] != SURVIVED or one["of"] >= of}
    wanted = {mutant.key for mutant in mutants} - set(results)
    gc.collect()
    gc.freeze()  # what a fork does not look at, it does not copy
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            task = progress.add_task("", total=len(mutants))
            for number, (key, result) in enumerate(judged(bench.cases(wanted, results), bench.plan, jobs), 1):
                results[key] = result
                survived = sum(1 for one in results.values() if one["outcome"] == SURVIVED)
                progress.update(task, completed=len(results), description=f"{survived} survived")
                if number % SAVE_EVERY == 0:
                    save(path, digest, results)
    finally:
        save(path, digest, results)
    return results
