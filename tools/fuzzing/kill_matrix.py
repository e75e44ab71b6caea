"""The kill matrix: each fault of the catalogue switched on in the reference, and fuzzed until it is named.

    PYTHONPATH=tools:benchmarks python -m fuzzing.kill_matrix [--seeds N] [--seconds S] [--clean S] [FAULT ...]

A fault counts as found when the fuzzer
names it, not when it finds something. Without a fault nothing may be found. Exits with 1 if that is not so. Writes
benchmarks/results/kill_matrix.md, unless some faults were asked for by name.

"Seeds" are the schedules that come from the prover, played before anything is drawn; "search alone" does without them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import dataclass, field

from measuring import RESULTS, machine, say, spread, write_page

from fuzzing.campaigns import faults_of_the_reference, run_campaign
from kvproof.conformance.fuzz.campaign import Campaign
from kvproof.conformance.fuzz.reference import Reference

PAGE = RESULTS / "kill_matrix.md"
SECONDS = 60.0
SEEDS, SEEDS_OF_SEARCH = 10, 3
CLEAN_SECONDS = 600.0


@dataclass
class Hunts:
    """Campaigns after one fault, each with another seed."""

    fault: str
    seconds: list[float] = field(default_factory=list)
    """Until it was named, of those that named it."""
    schedules: list[int] = field(default_factory=list)
    acts: list[int] = field(default_factory=list)
    """Of the schedule that was left, once it was shrunk."""
    missed: int = 0
    beside: set[str] = field(default_factory=set)
    """What else was found on the way, and is not named."""

    def add(self, campaign: Campaign) -> None:
        named = campaign.naming(self.fault)
        self.beside |= {f.trouble.signature for f in campaign.found.values() if not f.trouble.faults}
        if not named:
            self.missed += 1
            return
        first = min(named, key=lambda found: found.after_seconds)
        self.seconds.append(first.after_seconds)
        self.schedules.append(first.after_schedules)
        self.acts.append(min(len(found.schedule.acts) for found in named))


def reference_without_seeds() -> Reference:
    target = Reference()
    target.seeds = ()
    return target


def hunt(target: Reference, fault: str, seeds: int, seconds: float) -> Hunts:
    hunts = Hunts(fault)
    for seed in range(1, seeds + 1):
        hunts.add(
            run_campaign(
                target,
                seconds=seconds,
                seed=seed,
                faults=(fault,),
                checker="compiled",
                is_enough=lambda campaign: bool(campaign.naming(fault)),
            )
        )
    return hunts


def row(hunts: Hunts, alone: Hunts, seeds: int, seeds_of_search: int) -> str:
    found = f"{seeds - hunts.missed} of {seeds}"
    found_alone = f"{seeds_of_search - alone.missed} of {seeds_of_search}"
    return (
        f"| {hunts.fault} | {found} | {spread(hunts.seconds, digits=1)} | {spread(hunts.schedules, digits=0)} "
        f"| {spread(hunts.acts, digits=0)} | {found_alone} | {spread(alone.seconds, digits=1)} |"
    )


def clean(seconds: float) -> Campaign:
    return run_campaign(Reference(), seconds=seconds, seed=1, checker="compiled")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("faults", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--alone", type=int, default=SEEDS_OF_SEARCH, help="seeds of the search alone")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one campaign, at most")
    parser.add_argument("--clean", type=float, default=CLEAN_SECONDS, help="seconds of the campaign without a fault")
    asked = parser.parse_args()

    rows, medians, missed = [], [], []
    for fault in asked.faults or faults_of_the_reference():
        hunts = hunt(Reference(), fault, asked.seeds, asked.seconds)
        alone = hunt(reference_without_seeds(), fault, asked.alone, asked.seconds)
        rows.append(row(hunts, alone, asked.seeds, asked.alone))
        say(rows[-1] + (f"  beside it: {'; '.join(sorted(hunts.beside))}" if hunts.beside else ""))
        missed += [fault] if hunts.missed else []
        medians += [statistics.median(hunts.seconds)] if hunts.seconds else []
    none = clean(asked.clean)
    without = (
        f"Without a fault: {none.schedules:,} schedules, {none.steps:,} steps and {none.events:,} events in "
        f"{none.elapsed:.0f} s; {len(none.found) or 'nothing'} found."
    )
    say(without)
    in_time = (
        f"Median of the medians {statistics.median(medians):.1f} s, slowest median {max(medians):.1f} s."
        if medians
        else ""
    )
    if not asked.faults:
        write_page(PAGE, "\n".join([*_head(asked), *rows, "", in_time, "", without]))
    for fault in missed:
        say(f"not always named: {fault}")
    return 1 if missed or none.found else 0


def _head(asked: argparse.Namespace) -> list[str]:
    return [
        "# Kill matrix: every fault, fuzzed until it is named",
        "",
        f"Written by `make kill-matrix`. {machine()}; one campaign at a time, on one core; load at the end: "
        f"{os.getloadavg()[0]:.0f}. Medians, smallest to largest, over {asked.seeds} seeds (search alone: {asked.alone}); a "
        f"campaign ends after {asked.seconds:.0f} s. Seconds are until the fault is named, schedules those played until then, "
        "acts those of the schedule that is left, once it is shrunk.",
        "",
        "| fault | named | seconds | schedules | acts | search alone: named | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]


if __name__ == "__main__":
    sys.exit(main())
