"""False alarms, and whether the interpreters agree: figures for docs/trust.md.

    PYTHONPATH=tools:benchmarks python -m soak.reference_soak [--steps N] [--agree N] [--seed S] [--seconds S]

Fuzzes the reference without a fault for so many
checked steps: every event judged, every page counted after every step, every decision compared with its policy, outputs computed
anew where a model runs; each finding is a false alarm. Then plays schedules, with faults and without, until so many steps of the
rules were taken by the oracle, by Z3 and by the compiled checker, and compares them. `--seconds` bounds each part; what was not
reached is said. Exit code 1 if anything is found. Writes benchmarks/results/soak.md, unless it is bounded.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from fuzzing.campaigns import drawn, faults_of_the_reference, run_campaign
from interpreter_agreement import Asked, Disagreement, compare
from measuring import RESULTS, machine, say, write_page
from policies import PolicedReference

from kvproof.conformance.compiled.warm import warmed
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.replay.rules_of_trace import rules_of

PAGE = RESULTS / "soak.md"
DRAWN_AT_ONCE = 100
FAULTY = 3
"""Of so many schedules one has a fault on: a trace that is refused, too, must be refused alike."""


def false_alarms(steps: int, seed: int, seconds: float) -> tuple[str, int]:
    """A sentence, and how many findings."""
    campaign = run_campaign(
        PolicedReference(),
        seconds=seconds,
        seed=seed,
        checker="compiled",
        is_enough=lambda campaign: campaign.steps >= steps,
        progress=lambda campaign: None,
    )
    for found in campaign.found.values():
        say(f"FALSE ALARM: {found.trouble.signature}: {found.trouble.sentence}\n  {found.schedule.model_dump_json()}")
    return (
        f"False alarms: **{len(campaign.found)}** in {campaign.steps:,} checked steps of the reference without a fault, its "
        f"policies asked ({campaign.schedules:,} schedules, {campaign.events:,} events, {campaign.elapsed:.0f} s; {steps:,} "
        f"steps were asked for; seed {seed})."
    ), len(campaign.found)


def interpreters_agree(steps: int, seed: int, seconds: float) -> tuple[str, Disagreement | None]:
    """A sentence, and of all disagreements the smallest."""
    began, asked, smallest, played, faulty = time.monotonic(), Asked(), None, 0, 0
    target, judge, faults = Reference(), warmed(rules_of(None)), faults_of_the_reference()
    while asked.steps < steps and time.monotonic() - began < seconds:
        for schedule in drawn(target, DRAWN_AT_ONCE, seed * 1_000_003 + played):
            played += 1
            fault = (faults[played // FAULTY % len(faults)],) if played % FAULTY == 0 else ()
            faulty += len(fault)
            try:
                run = play(schedule.model_copy(update={"faults": fault}), target)
            except UserError:
                continue
            if run.header is not None:
                found = compare(run.header, run.events, judge, asked)
                smallest = min(filter(None, (smallest, found)), key=lambda one: one.size, default=None)
            if asked.steps >= steps or time.monotonic() - began >= seconds:
                break
    return (
        f"Interpreters: oracle, Z3 and compiled checker compared on {asked.steps:,} steps ({asked.distinct:,} different ones) of "
        f"{played:,} schedules, {faulty:,} of them with a fault on; {steps:,} steps were asked for; "
        f"{time.monotonic() - began:.0f} s: **{'they agree' if smallest is None else 'they disagree'}**."
    ), smallest


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="checked steps of the reference")
    parser.add_argument("--agree", type=int, default=100_000, help="steps on which the interpreters are compared")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="of each part, at most")
    options = parser.parse_args()
    seconds = options.seconds or float("inf")

    alarms, count = false_alarms(options.steps, options.seed, options.seconds or 1e9)
    say(alarms)
    agreement, smallest = interpreters_agree(options.agree, options.seed, seconds)
    say(agreement)
    if smallest is not None:
        say(f"DISAGREEMENT between {smallest.between}, event {smallest.seq}: {smallest.what}\n  {smallest.asked}")
    if options.seconds is None:
        head = f"Written by `make soak`. {machine()}; load at the end: {os.getloadavg()[0]:.0f}."
        write_page(PAGE, f"# Soak: false alarms and disagreements\n\n{head}\n\n- {alarms}\n- {agreement}")
    return 1 if count or smallest is not None else 0


if __name__ == "__main__":
    sys.exit(main())
