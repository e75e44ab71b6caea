"""Is every small mistake in a function of a release seen by the claims about it? `make mutants-code`.

    PYTHONPATH=tools:benchmarks python -m code_mutation FOLDER [--jobs N] [--results FILE] [--tell] [--show]

FOLDER holds the package `sglang` of a release, as an unpacked wheel does. Mutants are made in memory; what was judged is kept: a
run that was stopped goes on. Writes its part of benchmarks/results/code_mutants.md. Exit code 1 if a mutant survives that
`tools/code_mutation/reviewed.py` has no word on, if a word there is on no mutant or on one that is noticed, or if fewer than 97%
of those that change what claims are about are refuted or not understood.
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
from rule_mutation.mutant_results import Result, kept, load, save, write_part

from code_mutation.judging import SURVIVED, Case, Followed, cases, followed, judged
from code_mutation.results_page import report
from code_mutation.reviewed import REVIEWS
from kvproof.conformance.code_proof.proving import MOST_MEMORY, own_sources
from kvproof.conformance.code_proof.targets import Target, targets_of
from kvproof.spec.actions import ACTIONS

PAGE = RESULTS / "code_mutants.md"
EVERY = 20
"""Results are saved after so many."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--results", type=Path, default=Path("out/mutants-code.json"), help="kept between runs")
    parser.add_argument("--page", type=Path, default=PAGE, help="the tables go between its markers")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--tell", action="store_true", help="judge nothing: write the page of what was judged so far")
    parser.add_argument("--show", action="store_true", help="print the text of the mutants that survive")
    asked = parser.parse_args()
    target = targets_of(asked.folder)[0]
    profile = target.profile()
    claims, left_out = followed(target.tree, profile.actions if profile is not None else ACTIONS)
    everything = list(cases(target.tree, claims))
    say(f"{len(claims)} claims, {len(everything)} changes; results in {asked.results}")
    results = kept(asked.results) if asked.tell else _judged(target, claims, everything, asked)
    told = report([case.mutant for case in everything], results, _head(target, claims, left_out), REVIEWS)
    print(told.text)
    write_part(asked.page, "mutants-code", told.text)
    for case in everything if asked.show else ():
        if results.get(case.mutant.key, {}).get("outcome") == SURVIVED:
            say(f"{case.mutant.key}\n    {case.mutant.original}\n    {case.mutant.mutated}")
    for sentence in told.complaints:
        say(sentence)
    return 1 if told.complaints else 0


def _head(target: Target, claims: list[Followed], left_out: list[str]) -> list[str]:
    lines = [f"{machine()}; {datetime.date.today()}. SGLang {target.version}, {len(claims)} claims."]
    by_others = [f"{claim.name} by {claim.rule}" for claim in claims if claim.rule is not None]
    lines += [f"Not by its own rule: {'; '.join(by_others)}."] if by_others else []
    lines += [f"Not proved, and not asked: {'; '.join(left_out)}."] if left_out else []
    return lines


def _judged(target: Target, claims: list[Followed], everything: list[Case], asked: Any) -> dict[str, Result]:
    digest = own_sources()
    results = load(asked.results, digest)
    waiting = [case for case in everything if case.mutant.key not in results]
    context = multiprocessing.get_context("fork")
    with context.Pool(asked.jobs, _begin, (target, claims)) as pool:
        for number, (key, result) in enumerate(pool.imap_unordered(_one, waiting), 1):
            results[key] = result
            if number % EVERY == 0:
                save(asked.results, digest, results)
                say(f"{number} of {len(waiting)}")
    save(asked.results, digest, results)
    return results


_work: list[Any] = []


def _begin(target: Target, claims: list[Followed]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    _work[:] = [target.tree, claims]


def _one(case: Case) -> tuple[str, Result]:
    tree, claims = _work
    return case.mutant.key, judged(tree, case, claims)


if __name__ == "__main__":
    sys.exit(main())
