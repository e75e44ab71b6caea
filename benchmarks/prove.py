"""How long proofs and counterexamples take, beside SPIN on the same small instance: `make bench-prove`.

Medians of repeated runs with their spread (smallest to largest), all in one run on one machine, so that ratios mean
something. Writes benchmarks/results/prove.md. Where SPIN or gcc is missing, it says so and continues.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import z3
from measuring import CLI, machine, say, table
from spin import verifier as spin

from kvproof.conformance.adapters.sglang.code.functions import PACKAGE
from kvproof.model.code.source import Module
from kvproof.model.compiled.search import compile_anew
from kvproof.model.explore import Compiled, Interpreted, counterexample, shortest_run
from kvproof.model.integers import Integers
from kvproof.model.prove import induction_step, prove
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS
from kvproof.spec.invariants import ALL_INVARIANTS, AUXILIARY, INVARIANTS
from kvproof.spec.machine import LEDGER, MACHINES

HERE = Path(__file__).parent
PAGE = HERE / "results" / "prove.md"
SITES = HERE.parent / ".venv-sglang" / "site"
IN_DETAIL = ("0.5.11", "0.5.23")
COLD = 3
"""Proofs of each release with nothing kept, and again with all of it."""
CHANGES = 12
"""Functions that are changed, one after the other."""
COLUMNS = ("function", "rule", "verdict", "paths", "questions")
REPEATS = 5
# The instances and faults that both tools are given: (page size, row width).
SAME = (2, 4)
SAME_FOR_TWO = (1, 3)
LARGE = (4, 12)
"""Of the instances that a proof explores whole one of the largest; the model for SPIN has no rows of 12."""
LARGE_CONFIG = {"overlap": True, "window": 2}
SAME_FAULTS = ("F22790e", "F22862b")


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        return f"{_time(self.median)} ({_time(low)} to {_time(high)})"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def timed(work: Callable[[], object], repeats: int = REPEATS) -> Timing:
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return Timing(tuple(found))


def whole_command(cache: Path) -> tuple[float, float]:
    """`kvproof prove` in a process of its own: seconds, and peak memory in MiB."""
    environment = {**os.environ, "KVPROOF_CACHE": str(cache)}
    begin = time.perf_counter()
    process = subprocess.Popen([*CLI, "prove", "--quiet"], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kvproof prove: exit code {process.returncode}; there is nothing to measure")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def proof_section() -> list[str]:
    say("proof of everything")
    cold, warm = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(whole_command(Path(folder)))
            kept = any(Path(folder).rglob("*"))
            if kept:
                warm.append(whole_command(Path(folder)))
    in_process = timed(prove)
    rows = [
        ("cold, whole command", _seconds(cold), _peak(cold)),
        ("warm, whole command", _seconds(warm) if warm else "this version keeps no answers", _peak(warm)),
        ("cold, inside a running Python", str(in_process), ""),
    ]
    return ["## Proof of everything", "", *table(("", "time", "peak memory"), rows)]


def _seconds(runs: list[tuple[float, float]]) -> str:
    return str(Timing(tuple(seconds for seconds, _ in runs)))


def _peak(runs: list[tuple[float, float]]) -> str:
    return f"{max(mib for _, mib in runs):.0f} MiB" if runs else ""


def code_section() -> list[str]:
    """The functions of the releases that `make test-sglang` installs: each by one command, with nothing kept and again."""
    lines = ["## Proof of SGLang's own functions", ""]
    releases = sorted(SITES.iterdir()) if SITES.is_dir() else []
    if not releases:
        say("no release of SGLang: left out")
        return [*lines, "Not measured: `make test-sglang` installs the releases."]
    rows, functions = [], []
    for release in releases:
        say(f"functions of {release.name}")
        with ExitStack() as folders:
            caches = [Path(folders.enter_context(tempfile.TemporaryDirectory())) for _ in range(COLD)]
            cold, answers = zip(*(code_command(release, cache) for cache in caches), strict=True)
            kept, found = caches[-1], answers[-1]
            again = Timing(tuple(code_command(release, kept)[0] for _ in range(COLD)))
            changed = str(after_changes(release, kept, found)) if release.name in IN_DETAIL else ""
        sums = [sum(one[count] for one in found) for count in ("paths", "questions")]
        proved = sum(one["verdict"] == "proved" for one in found)
        rows.append((release.name, f"{proved} of {len(found)}", *sums, str(Timing(cold)), str(again), changed))
        if release.name in IN_DETAIL:
            functions += [(release.name, *(one[name] for name in COLUMNS), _time(one["seconds"])) for one in found]
    head = ("release", "claims proved", "paths", "questions", "cold", "warm", f"one of {CHANGES} functions changed")
    each = ("release", *COLUMNS, "time")
    return [*lines, "`kvproof prove --code`, in two processes.", "", *table(head, rows), "", *table(each, functions)]


def after_changes(release: Path, kept: Path, found: list[dict[str, Any]]) -> Timing:
    """With what is kept, after a change of one of the functions that ran: of each so many of them, by file and name."""
    names = sorted({name for one in found for name in one["ran"]})
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(release / PACKAGE, tree / PACKAGE, ignore=shutil.ignore_patterns("*.so", "*.pyc", "*.json"))
        shutil.copytree(*(at / f"{PACKAGE}-{release.name}.dist-info" for at in (release, tree)))
        for name in names[:: math.ceil(len(names) / CHANGES)]:
            path, _, function = name.rpartition(":")
            text = (tree / path).read_text(encoding="utf-8")
            (tree / path).write_text(_with_a_change(path, text, function), encoding="utf-8")
            seconds.append(code_command(tree, kept)[0])
            (tree / path).write_text(text, encoding="utf-8")
    return Timing(tuple(seconds))


def _with_a_change(path: str, text: str, function: str) -> str:
    node = dict(Module(path, path, text).functions)[function]
    lines = text.split("\n")
    lines[(node.end_lineno or node.lineno) - 1] += "  # changed"
    return "\n".join(lines)


def code_command(release: Path, cache: Path) -> tuple[float, list[dict[str, Any]]]:
    """Seconds, and what is said of each function. It exits with 1 if a function differs, with 3 if one has no verdict."""
    told = cache / "functions.json"
    command = [*CLI, "prove", "--code", str(release), "--cache", str(cache), "--json", str(told), "--quiet"]
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"kvproof prove --code {release}: exit code {done.returncode}; there is nothing to measure")
    [target] = json.loads(told.read_text(encoding="utf-8"))["targets"]
    return seconds, target["functions"]


def counterexample_section() -> list[str]:
    rows = []
    for fault in FAULTS.values():
        say(f"counterexample of {fault.id}")
        run = counterexample(fault)
        found = f"{len(run.steps)} steps, P = {run.page_size}" if run else "none"
        rows.append((fault.id, found, str(timed(lambda fault=fault: counterexample(fault), 3))))  # type: ignore[misc]
    return ["## Counterexample of each fault", "", *table(("fault", "shortest run", "time to find it"), rows)]


def spin_section() -> list[str]:
    """The rules for one page size, as a model for SPIN."""
    lines = ["## Beside SPIN", ""]
    if missing := spin.missing():
        say(f"{missing}: left out")
        return [*lines, f"Not measured: {missing} (`apt-get install spin gcc`)."]
    say("SPIN: all states")
    compiling = timed(_compiled_anew)
    compiled, interpreted = Compiled(), Interpreted()
    same, same_for_two, large = Integers(*SAME), Integers(*SAME_FOR_TWO), Integers(*LARGE, **LARGE_CONFIG)  # type: ignore[arg-type]
    ours, by_hand = timed(lambda: compiled.whole(same)), timed(lambda: interpreted.whole(same), 3)
    states, many = compiled.whole(same).states, compiled.whole(large).states
    of_large = timed(lambda: compiled.whole(large), 3)
    with spin.verifier(*SAME) as one, spin.verifier(*SAME_FOR_TWO, ledgers=2) as two:
        runs = [one.run() for _ in range(REPEATS)]
        pair = [two.run() for _ in range(3)]
        builds = Timing((one.build_seconds, two.build_seconds))
    theirs, both = Timing(tuple(r.seconds for r in runs)), Timing(tuple(r.seconds for r in pair))
    rows = [
        (f"one ledger, P = {SAME[0]}, rows of {SAME[1]}", "kvproof", states, str(ours), _rate(states, ours)),
        ("", "kvproof, interpreted", states, str(by_hand), _rate(states, by_hand)),
        ("", "SPIN", runs[0].states, str(theirs), _rate(runs[0].states, theirs)),
        (
            f"two ledgers, P = {SAME_FOR_TWO[0]}, rows of {SAME_FOR_TWO[1]}",
            "kvproof",
            compiled.whole(same_for_two).states,
            str(timed(lambda: compiled.whole(same_for_two), 3)),
            "one stands for both",
        ),
        ("", "SPIN", pair[0].states, str(both), _rate(pair[0].states, both)),
        (
            f"one ledger, P = {LARGE[0]}, rows of {LARGE[1]}, overlap, window 2",
            "kvproof",
            many,
            str(of_large),
            _rate(many, of_large),
        ),
    ]
    lines += table(("all states", "tool", "states", "time", "states per second"), rows)
    lines += ["", f"SPIN's time is that of the verifier; to generate and compile it took {builds}."]
    lines += [f"kvproof's is that of the search; to trace, print and compile the rules took {compiling}.", ""]
    lines += [_agreement(states, runs[0].states), ""]
    lines += [*table(("fault", "tool", "steps", "time", "with compiling"), list(_same_faults())), ""]
    lines += [
        "With one ledger most of SPIN's time is the start of its process; the rate with two is what it can do.",
        "",
        "Runs of the same length are expected of both: SPIN searches breadth first here, as kvproof does. kvproof needs",
        "fewer states: a ledger never reads another's, so one stands for all, and the search only looks for runs; that",
        "there is none is proved, for every page size, which no number of states shows.",
    ]
    return lines


def _compiled_anew() -> None:
    compile_anew()
    Compiled().whole(Integers(1, 0))  # nothing fits into it


def _agreement(ours: int, theirs: int) -> str:
    if ours == theirs:
        return f"Both find the same {ours:,} states: the rules, and their model for SPIN written by hand, agree on the instance."
    return (
        f"The states differ ({ours:,}, SPIN {theirs:,}): `spin/session.pml` is of another version of the rules. "
        "Compare rates only."
    )


def _rate(states: int, timing: Timing) -> str:
    return f"{states / timing.median:,.0f}"


def _same_faults() -> Iterator[tuple[object, ...]]:
    for name in SAME_FAULTS:
        say(f"SPIN: {name}")
        fault = FAULTS[name]
        run = counterexample(fault)
        assert run is not None
        instance = (run.page_size, run.row_width)
        searched = timed(lambda fault=fault: counterexample(fault), 3)  # type: ignore[misc]
        alone = timed(lambda fault=fault, at=instance: shortest_run(fault, *at, fault.breaks[0]), 3)  # type: ignore[misc]
        yield name, "kvproof, all smaller instances first", len(run.steps), str(searched), str(searched)
        yield "", f"kvproof, only P = {instance[0]}, rows of {instance[1]}", len(run.steps), str(alone), str(alone)
        with spin.verifier(*instance, fault=name) as verifier:
            runs = [verifier.run() for _ in range(REPEATS)]
            built = verifier.build_seconds
        theirs = Timing(tuple(r.seconds for r in runs))
        whole = Timing(tuple(s + built for s in theirs.seconds))
        yield "", f"SPIN, only P = {instance[0]}, rows of {instance[1]}", runs[0].steps, str(theirs), str(whole)


def growth_section() -> list[str]:
    """Time of the induction against the number of actions and of invariants; deviations serve as further actions."""
    say("growth")
    actions = [*ACTIONS.values(), *(fault.deviate() for fault in FAULTS.values() if fault.machine is LEDGER)]
    sizes = [len(ACTIONS) // 2, len(ACTIONS), len(actions)]
    names = list(ALL_INVARIANTS)
    counts = sorted({max(1, len(names) * part // 4) for part in (1, 2, 3, 4)})
    rows = []
    for count in counts:
        with only(names[:count]):
            timings = [timed(lambda size=size: induct(actions[:size]), 3) for size in sizes]  # type: ignore[misc]
        cells = [
            f"{_time(t.median)}, {1000 * t.median / (size * count):.1f} ms each"
            for t, size in zip(timings, sizes, strict=True)
        ]
        rows.append((f"{count} invariants", *cells))
    head = ("", *(f"{size} actions" for size in sizes))
    return [
        "## How proof time grows",
        "",
        "The proof is one question per action and invariant (and per side condition of an effect): their number grows with",
        f"actions × invariants. The last column has the faulty rules as further actions to {len(ACTIONS)} right ones.",
        "",
        *table(head, rows),
        "",
        "`each` is the time per cell of the matrix. Along a row it stays: twice the actions take twice the time, because no",
        "action's question mentions another action. Down a column it tells what a further invariant costs: it is denied once",
        "per action, and assumed in every other question.",
    ]


@contextmanager
def only(names: list[str]) -> Iterator[None]:
    """The specification with fewer invariants of the ledger: assumed and asked for are these."""
    tables = (INVARIANTS, AUXILIARY)
    kept = [dict(known) for known in tables]
    for known in tables:
        for name in set(known) - set(names):
            del known[name]
    try:
        yield
    finally:
        for known, whole in zip(tables, kept, strict=True):
            known.clear()
            known.update(whole)


def induct(actions: list[Any]) -> None:
    for action in actions:
        for _ in induction_step(action, []):
            pass


def main() -> int:
    sections = [proof_section(), code_section(), counterexample_section(), spin_section(), growth_section()]
    z3_version = f"Z3 {z3.get_version_string()}"
    head = [
        "# Time of proofs",
        "",
        f"{machine(z3_version)}. Median of repeated runs, smallest to largest in brackets.",
        "",
    ]
    cells = sum(len(m.actions) * len(m.all_invariants) for m in MACHINES)
    actions = sum(len(m.actions) for m in MACHINES)
    head += [
        f"{actions} actions, {cells} pairs of action and invariant, {len(FAULTS)} deviations. `make bench-prove`",
        "",
    ]
    text = "\n".join([*head, *(line for section in sections for line in [*section, ""])]).rstrip() + "\n"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
