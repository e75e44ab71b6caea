"""Is every small mistake in an implementation noticed? `make mutants`.

    PYTHONPATH=tools:benchmarks python -m mutation [--jobs N] [--sample N | --all] [--results FILE]
    PYTHONPATH=tools:benchmarks:.venv-sglang/site/0.5.11 .venv-sglang/bin/python -m mutation --subject sglang

Makes mutants of the reference implementation, or of SGLang's streaming sessions, in memory; plays the same runs on each until a
check notices something, and tells which one did. What was judged is kept: a run that was stopped continues. Writes its part of
benchmarks/results/mutants.md. Exit code 1 if a mutant survives that `tools/mutation/reviewed.py` has no word on, if a word
there is on no mutant or on one that is noticed, or if fewer than 95% of those that are not equivalent are noticed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
from pathlib import Path

from measuring import RESULTS, machine
from rich.console import Console
from rule_mutation.mutant_results import Result, kept, write_part

from kvproof.conformance.errors import UserError
from mutation.bench import Bench, judge, mistakes_of
from mutation.results_page import report
from mutation.sample import evenly
from mutation.subjects import SUBJECTS

PAGE = RESULTS / "mutants.md"
SAMPLES = {"reference": 400, "sglang": 80}
"""Of those some shift no number or come to no line that is run: what is left is more than 200, and more than 50."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", choices=SUBJECTS, default="reference")
    parser.add_argument("--results", type=Path, help="kept between runs; out/mutants-SUBJECT.json")
    parser.add_argument("--page", type=Path, default=PAGE, help="the tables go between its markers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seed", type=int, default=1, help="of the schedules, and of the sample")
    parser.add_argument("--schedules", type=int, default=120, help="by chance, beside the seeds and the scenarios")
    parser.add_argument("--with-a-model", type=int, default=24, help="and so many more in which a model runs")
    how_many = parser.add_mutually_exclusive_group()
    spread = f"so many, spread evenly over files and kinds; default: {SAMPLES['reference']}, {SAMPLES['sglang']}"
    how_many.add_argument("--sample", type=int, help=spread)
    how_many.add_argument("--all", action="store_true", help="every mutant there is: most of a day")
    parser.add_argument("--tell", action="store_true", help="judge nothing: write the page of what was judged so far")
    asked = parser.parse_args()
    console = Console(stderr=True)
    path = asked.results or Path(f"out/mutants-{asked.subject}.json")
    try:
        subject = SUBJECTS[asked.subject]()
        everything = [mistake.mutant for mistake in mistakes_of(subject)]
        chosen = evenly(everything, None if asked.all else asked.sample or SAMPLES[asked.subject], asked.seed)
        console.print(f"{len(everything)} changes in all, {len(chosen)} are tried; results in {path}")
        if asked.tell:
            results = kept(path)
            chosen = [mutant for mutant in everything if mutant.key in results]
        else:
            bench = Bench(subject, asked.seed, asked.schedules, asked.with_a_model, console)
            results = judge(bench, chosen, path, asked.jobs, console)
    except KeyboardInterrupt:
        console.print(f"interrupted; what was judged is in {path}, the next run continues")
        return 130
    except UserError as error:
        console.print(error.message)
        return 2
    told = report(subject, everything, chosen, results, [_head(asked, results)])
    print(told.text)
    write_part(asked.page, f"mutants-{asked.subject}", told.text)
    for sentence in told.complaints:
        console.print(sentence)
    return 1 if told.complaints else 0


def _head(asked: argparse.Namespace, results: dict[str, Result]) -> str:
    drawn = f"{asked.schedules} schedules by chance" + (
        f", {asked.with_a_model} more with a model" if asked.subject == "reference" else ""
    )
    runs = max((result.get("of", 0) for result in results.values()), default=0)
    return (
        f"{machine()}; {datetime.date.today()}; load at the end: {os.getloadavg()[0]:.0f}. Seed {asked.seed}; {runs} runs, "
        f"{drawn} among them; a mutant is played on those that come to its line, until one notices it."
    )


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
