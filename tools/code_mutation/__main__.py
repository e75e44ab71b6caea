"""Is every small mistake in a function of a release seen by the claims about it? `make mutants-code`.

    PYTHONPATH=tools:benchmarks python -m code_mutation FOLDER [--all] [--jobs N] [--results FILE] [--tell] [--show]

FOLDER holds the package `sglang` of a release, as an unpacked wheel does. Mutants are made in memory: without --all a sample,
spread evenly over functions and kinds of mistake. What was judged is kept: a run that was stopped continues. Writes its part of
benchmarks/results/code_mutants.md. Exit code 1 if a mutant survives that `tools/code_mutation/reviewed.py` has no word on, if a
word there is on no mutant or on one that is noticed, or if fewer than 97% of those that change what claims are about are refuted
or not understood.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import resource
import sys
from pathlib import Path
from typing import Any

from measuring import RESULTS, machine, say
from mutation.sample import evenly
from rule_mutation.mutant_results import Result, kept, load, save, write_part
from rule_mutation.mutants import Mutant

from code_mutation.judging import SURVIVED, Case, Followed, cases, followed, judged, mutants_of
from code_mutation.results_page import report
from code_mutation.reviewed import REVIEWS
from kvproof.conformance.code_proof.kept_answers import own_sources
from kvproof.conformance.code_proof.proving import MOST_MEMORY
from kvproof.conformance.code_proof.targets import Target, targets_of
from kvproof.model.code.source import Sources
from kvproof.spec.actions import ACTIONS

PAGE = RESULTS / "code_mutants.md"
SAMPLE = 600
SEED = 0
EVERY = 20
"""Results are saved after so many."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--results", type=Path, default=Path("out/mutants-code.json"), help="kept between runs")
    parser.add_argument("--page", type=Path, default=PAGE, help="the tables go between its markers")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--all", action="store_true", help="every change of every statement that a claim runs")
    parser.add_argument("--tell", action="store_true", help="judge nothing: write the page of what was judged so far")
    parser.add_argument("--show", action="store_true", help="print the text of the mutants that survive")
    asked = parser.parse_args()
    target = targets_of(asked.folder)[0]
    profile = target.profile()
    claims, left_out = followed(target.tree, profile.actions if profile is not None else ACTIONS)
    everything = mutants_of(target.tree, claims)
    chosen = evenly(everything, None if asked.all else SAMPLE, SEED, lambda mutant: (mutant.function, mutant.operator))
    say(f"{len(claims)} claims, {len(chosen)} of {len(everything)} changes; results in {asked.results}")
    results = kept(asked.results) if asked.tell else _judged(target, claims, chosen, asked)
    head = [*_head(target, claims, left_out), *_sampled(len(chosen), len(everything))]
    told = report(chosen, results, head, REVIEWS)
    print(told.text)
    write_part(asked.page, "mutants-code", told.text)
    for mutant in chosen if asked.show else ():
        result = results.get(mutant.key, {})
        if result.get("outcome") == SURVIVED:
            say(f"{mutant.key}\n    {mutant.original}\n    {mutant.mutated}\n    {'; '.join(result['where'])}")
    for sentence in told.complaints:
        say(sentence)
    return 1 if told.complaints else 0


def _head(target: Target, claims: list[Followed], left_out: list[str]) -> list[str]:
    lines = [f"{machine()}; {datetime.date.today()}. SGLang {target.version}, {len(claims)} claims."]
    by_others = [f"{claim.name} by {claim.rule}" for claim in claims if claim.rule is not None]
    lines += [f"Not by its own rule: {'; '.join(sorted(by_others))}."] if by_others else []
    lines += [f"Not proved, and not asked: {'; '.join(left_out)}."] if left_out else []
    return lines


def _sampled(count: int, of: int) -> list[str]:
    if count == of:
        return []
    return [
        f"Of {of} changes {count} were tried, evenly over functions and kinds of mistake, the same in each run (seed {SEED})."
    ]


def _judged(target: Target, claims: list[Followed], chosen: list[Mutant], asked: Any) -> dict[str, Result]:
    digest = own_sources()
    results = load(asked.results, digest)
    waiting = [mutant.key for mutant in chosen if mutant.key not in results]
    context = multiprocessing.get_context("fork")
    with context.Pool(asked.jobs, _begin, (target, claims)) as pool:
        for number, (key, result) in enumerate(pool.imap_unordered(_one, cases(target.tree, claims, set(waiting))), 1):
            results[key] = result
            if number % EVERY == 0:
                save(asked.results, digest, results)
                say(f"{number} of {len(waiting)}")
    save(asked.results, digest, results)
    return results


_work: list[Any] = []


def _begin(target: Target, claims: list[Followed]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sources = Sources(target.tree)
    for module in {case.claim.module for case in claims}:
        sources.module(module)
    _work[:] = [sources, claims]


def _one(case: Case) -> tuple[str, Result]:
    sources, claims = _work
    return case.mutant.key, judged(sources, case, claims)


if __name__ == "__main__":
    sys.exit(main())
