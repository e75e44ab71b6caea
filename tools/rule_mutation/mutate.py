"""Mutation test over the specification: `python -m rule_mutation.mutate [--results FILE] [--page docs/trust.md]`.

Makes every mutant of the rules, asks for each whether any check notices it, and prints who survived. Two processes share the
work; results are kept, so an interrupted run goes on where it stopped, and a changed specification starts anew.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from rule_mutation.mutant_proof import BY_PROOF, Known, recorded
from rule_mutation.mutant_results import Result, begin_of, digest_of_modules, load, save, write_part
from rule_mutation.mutant_spec import JUDGING
from rule_mutation.mutant_verdicts import (
    CHECKS,
    EQUIVALENT,
    KILL_MATRIX,
    KILLED,
    NO_MUTANT,
    NOT_JUDGED,
    STATE_COUNT,
    SURVIVED,
    Judge,
)
from rule_mutation.mutants import Mutant, all_mutants, mutants_of, rule_modules

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
    return [m for m in mutants if results[m.key]["outcome"] != NO_MUTANT], results


def _progress(done: int, of: int, results: dict[str, Result]) -> None:
    if sys.stderr.isatty() or done % 100 == 0 or done == of:
        survived = sum(1 for r in results.values() if r["outcome"] == SURVIVED)
        print(f"\r{done}/{of} mutants judged, {survived} survived ", end="", file=sys.stderr, flush=True)
        if done == of:
            print(file=sys.stderr)


def report(mutants: list[Mutant], results: dict[str, Result]) -> str:
    """Score, table by kind of mistake, and survivors, in Markdown."""
    idle = [m for m in mutants if results[m.key]["outcome"] == NOT_JUDGED]
    mutants = [m for m in mutants if m not in idle]
    of = {m.key: results[m.key] for m in mutants}
    outcomes = Counter(r["outcome"] for r in of.values())
    by = Counter(r["by"] for r in of.values() if r["outcome"] == KILLED)
    judged_ones = len(mutants) - outcomes[EQUIVALENT]
    by_proof = sum(by[check] for check in BY_PROOF)

    def share(count: int) -> str:
        return f"{count} of {judged_ones} ({100 * count / max(judged_ones, 1):.1f}%)"

    lines = [
        f"{len(mutants)} mutants, {outcomes[EQUIVALENT]} of them equivalent. Killed: **{share(outcomes[KILLED])}**.",
        "",
        f"- by the proof alone: {share(by_proof)};",
        f"- with the kill matrix: {share(by_proof + by[KILL_MATRIX])};",
        f"- with replays of right runs: {share(outcomes[KILLED] - by[STATE_COUNT])};",
        f"- with the pinned numbers of states: {share(outcomes[KILLED])}.",
        "",
        f"| mistake | mutants | equivalent | {' | '.join(CHECKS)} | survived |",
        f"| --- | {' | '.join('--:' for _ in range(len(CHECKS) + 3))} |",
    ]
    for operator in sorted({m.operator for m in mutants}):
        lines.append(_row(operator, [of[m.key] for m in mutants if m.operator == operator]))
    lines += [_row("**all**", list(of.values())), ""]
    if idle:
        functions = ", ".join(sorted({f"`{m.function}` of `{m.path}`" for m in idle}))
        lines += [
            f"Not judged, and not counted: {len(idle)} mutants of functions that no judged rule runs: {functions}.",
            "",
        ]
    survivors = [m for m in mutants if of[m.key]["outcome"] == SURVIVED]
    if survivors:
        lines += [
            "Survivors:",
            "",
            "| where | rule | mistake | original | mutated | what differs |",
            "| --- " * 6 + "|",
        ]
    for m in survivors:
        place = f"`{m.path}:{m.line}`"
        original, mutated = (f"`{text}`".replace("|", "\\|") for text in (m.original, m.mutated))
        lines.append(f"| {place} | `{m.function}` | {m.operator} | {original} | {mutated} | {of[m.key]['detail']} |")
    return "\n".join(lines)


def _row(name: str, results: list[Result]) -> str:
    outcomes = Counter(r["outcome"] for r in results)
    by = Counter(r["by"] for r in results if r["outcome"] == KILLED)
    cells = [len(results), outcomes[EQUIVALENT], *(by[check] for check in CHECKS), outcomes[SURVIVED]]
    return f"| {name} | {' | '.join(str(c or '') for c in cells)} |"


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
        print(f"\ninterrupted; results so far are in {given.results}, the next run goes on", file=sys.stderr)
        return 130
    text = report(mutants, results)
    print(text)
    if given.page is not None:
        write_part(given.page, SCORE, text)
    return 0


def _interrupt(signum: int, frame: object) -> None:
    """To be told to stop is to be interrupted, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
