"""Mutation test over the specification: `python -m rule_mutation.mutate [--results FILE] [--page docs/trust.md]`.

Makes every mutant of the rules and of what effects mean for pages, asks for each whether any check notices it, and prints who
survived. Two processes share the work; results are kept, so an interrupted run continues where it stopped, and a changed
specification starts anew. Exit code 1 if the proof alone notices too few, if `reviewed.py` has no word on a survivor, or if it
has one on a mutant that does not survive.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from rule_mutation.mutant_proof import Known, recorded
from rule_mutation.mutant_results import Result, begin_of, digest_of_modules, load, save, write_part
from rule_mutation.mutant_spec import JUDGING
from rule_mutation.mutant_verdicts import (
    SURVIVED,
    Judge,
)
from rule_mutation.mutants import Mutant, all_mutants, mutants_of, rule_modules
from rule_mutation.results_page import told

PROCESSES = 2
SAVE_EVERY = 5.0
SCORE = "mutation-score"
"""The part of a page that is generated."""


def source_digest() -> str:
    """Of everything that a verdict depends on: the specification, its interpreters and the judges."""
    for name in JUDGING:
        importlib.import_module(f"kvproof.{name}")
    return digest_of_modules(("kvproof.spec", "kvproof.model"))


def judge_share(share: int, known: Known, done: frozenset[str], queue: Any) -> None:
    """One process: every mutant whose number is its share, unless it was judged before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent keeps what is done and says so
    parent = multiprocessing.parent_process()
    assert parent is not None  # it is started as a process of its own
    judge = Judge(known)
    number = 0
    for module in rule_modules():
        for mutant, tree in mutants_of(module):
            number += 1
            if not parent.is_alive():
                return  # it was killed, and nobody would ever read a verdict
            if number % PROCESSES == share and mutant.key not in done:
                begin = time.perf_counter()
                verdict = judge.verdict(mutant, tree)
                seconds = round(time.perf_counter() - begin, 2)
                queue.put((mutant.key, {**vars(verdict), "seconds": seconds}))
    queue.put(None)


def judged(known: Known, done: frozenset[str]) -> Iterator[tuple[str, Result]]:
    """Verdicts as they come, from all processes."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    workers = [context.Process(target=judge_share, args=(i, known, done, queue), daemon=True) for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    running = len(workers)
    while running:
        try:
            item = queue.get(timeout=5)
        except Empty:
            if any(w.exitcode not in (None, 0) for w in workers):
                raise RuntimeError("a judging process ended before its work was done") from None
            continue
        if item is None:
            running -= 1
        else:
            yield item


def run(path: Path) -> tuple[list[Mutant], dict[str, Result]]:
    """All mutants with their verdicts, those of an earlier run included."""
    digest = source_digest()
    mutants = list(all_mutants())
    results = load(path, digest)
    saved = time.monotonic()
    try:
        for key, result in judged(recorded(), frozenset(results)):
            results[key] = result
            _progress(len(results), len(mutants), results)
            if time.monotonic() - saved > SAVE_EVERY:
                save(path, digest, results)
                saved = time.monotonic()
    finally:
        save(path, digest, {m.key: results[m.key] for m in mutants if m.key in results})
    return mutants, results


def _progress(done: int, of: int, results: dict[str, Result]) -> None:
    if sys.stderr.isatty() or done % 100 == 0 or done == of:
        survived = sum(1 for r in results.values() if r["outcome"] == SURVIVED)
        print(f"\r{done}/{of} mutants judged, {survived} survived ", end="", file=sys.stderr, flush=True)
        if done == of:
            print(file=sys.stderr)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m rule_mutation.mutate", description="Mutation test over the rules.")
    parser.add_argument("--results", type=Path, default=Path("out/mutants-spec.json"), help="kept between runs")
    parser.add_argument("--page", type=Path, help="write the report between this page's markers")
    given = parser.parse_args(arguments)
    if given.page is not None and (
        not given.page.exists() or begin_of(SCORE) not in given.page.read_text(encoding="utf-8")
    ):
        print(f"{given.page}: no such page, or it has no line {begin_of(SCORE)}", file=sys.stderr)
        return 2
    try:
        mutants, results = run(given.results)
    except KeyboardInterrupt:
        print(f"\ninterrupted; results so far are in {given.results}, the next run continues", file=sys.stderr)
        return 130
    page = told(mutants, results)
    print(page.text)
    if given.page is not None:
        write_part(given.page, SCORE, page.text)
    for complaint in page.complaints:
        print(complaint, file=sys.stderr)
    return 1 if page.complaints else 0


def _interrupt(signum: int, frame: object) -> None:
    """To be told to stop is to be interrupted, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
