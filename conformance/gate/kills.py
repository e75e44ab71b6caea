"""The gate's second step: whether every known fault of the changed actions is still found.

Each fault that deviates one of them must be refuted by the proof; the replay of its counterexample must name it; and, where the
reference can do it, a short fuzz must name it. A check that lets one pass has become blind.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from kvproof.conformance.adapters.reference import require_faults
from kvproof.conformance.drive.counterexample import save_counterexample
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.isolation import InThisProcess
from kvproof.conformance.fuzz.targets import target_named
from kvproof.conformance.gate.needs import can_fuzz_the_reference
from kvproof.conformance.gate.proof import asker_of
from kvproof.conformance.gate.steps import FAILED, KILLS, OPEN, PASSED, SKIPPED, Outcome, Plan
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.verdict import VIOLATES
from kvproof.conformance.report.formats.run_events import Killed
from kvproof.model.prove import Proof, prove
from kvproof.spec.faults import FAULTS, Fault

SEARCH_SECONDS, ENOUGH_SCHEDULES = 30.0, 1_000
"""Of a search by chance, at most, and what it must have tried before it may be said to miss a fault. Nearly all are named by one
of the schedules that a campaign begins with, in less than a second."""
SEEN_BY_NO_EVENT = ("M18",)
"""What an admission is charged is in no event of a trace."""


def faults_of(actions: tuple[str, ...] | None) -> list[Fault]:
    """Those that deviate one of the actions, in a proof or in a trace; None: all."""
    return [
        fault
        for fault in FAULTS.values()
        if actions is None or not {*fault.deviations, *fault.in_traces}.isdisjoint(actions)
    ]


def kill_faults(plan: Plan) -> Outcome:
    faults = faults_of(plan.actions)
    if plan.actions is not None and not plan.actions:
        return Outcome(KILLS, SKIPPED, "no rule changed")
    about = "all actions" if plan.actions is None else ", ".join(plan.actions)
    if not faults:
        return Outcome(KILLS, SKIPPED, f"no fault of the catalogue deviates {about}")
    kills, left = _kills(plan, faults)
    problems = tuple(f"{kill.fault} is not found by {' nor '.join(kill.missed_by)}" for kill in kills if kill.missed_by)
    by_fuzzing = f"{sum(bool(kill.fuzzed) for kill in kills)} by fuzzing"
    detail = (
        f"{about}: of {len(faults)} faults {sum(kill.refuted for kill in kills)} refuted by the proof, "
        f"{sum(bool(kill.replayed) for kill in kills)} found by replay, "
        f"{by_fuzzing if can_fuzz_the_reference() else 'none fuzzed (kvproof[fuzz,reference] is not installed)'}"
    )
    if problems:
        return Outcome(KILLS, FAILED, detail, problems)
    if left:
        names = ", ".join(fault.id for fault in left)
        return Outcome(KILLS, OPEN, f"{detail}; too little time for {names}: give more --budget, or fewer actions")
    return Outcome(KILLS, PASSED, detail)


def _kills(plan: Plan, faults: list[Fault]) -> tuple[list[Killed], list[Fault]]:
    """What was looked at, and the faults for which there was no time."""
    fuzzer = _Fuzzer() if can_fuzz_the_reference() else None
    asker = asker_of(plan)
    kills: list[Killed] = []
    left: list[Fault] = []
    for number, fault in enumerate(faults):
        if plan.seconds_left <= 0:
            return kills, [*left, *faults[number:]]
        plan.show(f"{KILLS}: {fault.id}, {number} of {len(faults)}")
        proof = prove(fault, asker=asker)
        try:
            fuzzed = fuzzer.names(fault, plan) if fuzzer is not None else None
        except _TimeUp:
            left.append(fault)
            continue
        kills.append(_killed(fault, proof, fuzzed))
        plan.stream.tell(kills[-1])
    return kills, left


def _killed(fault: Fault, proof: Proof, fuzzed: bool | None) -> Killed:
    refuted, replayed = proof.verdict == "broken", _is_replayed(fault, proof)
    found = {"the proof": refuted, "replay": replayed, "fuzzing": fuzzed}
    return Killed(
        fault=fault.id,
        actions=tuple(fault.deviations),
        refuted=refuted,
        replayed=replayed,
        fuzzed=fuzzed,
        missed_by=tuple(who for who, did in found.items() if did is False),
    )


class _TimeUp(Exception):
    """Too little time to say that something is not found."""


def _is_replayed(fault: Fault, proof: Proof) -> bool | None:
    """A mutation is no known bug, so it is found, but nothing is named."""
    if fault.id in SEEN_BY_NO_EVENT:
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "counterexample.jsonl"
        try:
            save_counterexample(proof.counterexample, fault, trace)
        except UserError:
            return False
        report = replay(trace)
    named = [known.id for finding in report.findings for known in finding.explained_by]
    return report.verdict == VIOLATES and (fault.kind == "mutation" or fault.id in named)


class _Fuzzer:
    """The reference with a fault in it, played until the fault is named."""

    def __init__(self) -> None:
        self._target = target_named("reference")
        self._player = InThisProcess(self._target)

    def names(self, fault: Fault, plan: Plan) -> bool | None:
        """First the schedules that a campaign begins with, which are the same each time; then by chance. None: it cannot do it.

        Raises _TimeUp where there was too little time to say that it does not.
        """
        try:
            require_faults((fault.id,))
        except UserError:
            return None
        for seed in self._target.seeds:
            if plan.seconds_left <= 0:
                raise _TimeUp
            played = self._player.play(seed.model_copy(update={"faults": (fault.id,)}))
            if played.trouble is not None and fault.id in played.trouble.faults:
                return True
        return self._searched(fault, plan)

    def _searched(self, fault: Fault, plan: Plan) -> bool:
        """Behind those schedules: round 0 would play them again. What is found is not made small, for it is known."""
        from kvproof.conformance.fuzz.campaign import Campaign, search

        seconds = min(SEARCH_SECONDS, max(0.1, plan.seconds_left))
        campaign = Campaign(self._target, (fault.id,), {}, plan.seed, seconds, rounds=1)

        def stop_if_named(campaign: Campaign) -> None:
            if campaign.naming(fault.id):
                raise _Named

        with suppress(_Named):
            search(
                campaign,
                self._player,
                is_enough=lambda campaign: campaign.schedules >= ENOUGH_SCHEDULES,
                progress=stop_if_named,
            )
        if campaign.naming(fault.id):
            return True
        if campaign.schedules < ENOUGH_SCHEDULES:
            raise _TimeUp
        return False


class _Named(KeyboardInterrupt):
    """Not an Exception: Hypothesis hands this on at once."""
