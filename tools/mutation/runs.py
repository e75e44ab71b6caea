"""The runs that every mutant has to pass, each with all checks on, and which check noticed something first.

Runs are made once, from a seed, so that every mutant meets the same ones: the fuzzer's seeds, the scenarios, then schedules by
chance. On the right implementation none of them finds anything.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuzzing.campaigns import drawn

from kvproof.conformance.adapters.reference import header_of
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.judging import Judging, NewJudging
from kvproof.conformance.fuzz.play import (
    CRASH,
    EXIT,
    HANG,
    LEAK,
    OWN_CHECK,
    STUCK,
    VIOLATION,
    Trouble,
    Violated,
    Wrong,
    alarm,
    alarms,
    play,
    trouble_in,
)
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.target import Target

CONFORMANCE, CENSUS, SUMS, RECOMPUTATION, DRAIN, POLICY = CHECKS = (
    "conformance",
    "census",
    "sums",
    "recomputation",
    "drain",
    "policy",
)
CRASHED, HUNG = "crash", "hang"
COLUMNS = (*CHECKS, CRASHED, HUNG)
OF_KIND = {VIOLATION: CONFORMANCE, CRASH: CRASHED, EXIT: CRASHED, HANG: HUNG, STUCK: DRAIN, LEAK: DRAIN}

OF_ERROR = {
    "WrongOutput": RECOMPUTATION,
    "GivenUpInVain": DRAIN,
    "KeptForNobody": CENSUS,
    "HeldOtherwise": CENSUS,
    "OwnCheckFailed": SUMS,
    "PolicyBroken": POLICY,
}
"""Own checks of the targets, by the class that they raise. SGLang's is the equation of its pools."""

STEP_SECONDS, SCENARIO_SECONDS = 4.0, 20.0
"""Many times what an act, or a whole scenario, takes on a busy machine."""
DOES_NOT_ADD_UP = "do not add up"


@dataclass(frozen=True)
class Passed:
    """How a run went. `told`: a digest of every event, the same where the same was done; empty where something was found."""

    trouble: Trouble | None
    told: str


Play = Callable[[NewJudging], Passed]


@dataclass(frozen=True)
class Run:
    name: str
    play: Play
    about: str = ""
    """Played only for mutants that name this, and where no other run comes."""
    with_policies: Play | None = None
    """The run, with every decision compared with its policy as well: for what no other check notices."""


def noticed_by(trouble: Trouble) -> str:
    """The column of the table. Sums are a check of their own, though the census asks for them."""
    if trouble.kind != OWN_CHECK:
        return OF_KIND[trouble.kind]
    raised = trouble.trace.rpartition("\n")[2].partition(":")[0].rpartition(".")[2]
    if raised in OF_ERROR:
        return OF_ERROR[raised]
    said = trouble.sentence.split("; ")
    if all(DOES_NOT_ADD_UP in sentence for sentence in said):
        return SUMS
    return CENSUS


class _Kept:
    """Makes what judges, and keeps hold of it."""

    def __init__(self, new: NewJudging) -> None:
        self._new, self.made = new, list[Judging]()

    def __call__(self, header: Any, profile: str | None = None) -> Judging:
        self.made.append(self._new(header, profile))
        return self.made[-1]

    @property
    def told(self) -> str:
        said = [vars(event) for judging in self.made[:1] for event in getattr(judging, "told", ())]
        return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


def schedule_run(name: str, schedule: Schedule, target: Target, with_policies: Target | None = None) -> Run:
    def run(on: Target, new_judging: NewJudging) -> Passed:
        kept = _Kept(new_judging)
        trouble = play(schedule, on, step_seconds=STEP_SECONDS, new_judging=kept).trouble
        return Passed(trouble, kept.told if trouble is None else "")

    return Run(name, partial(run, target), with_policies=partial(run, with_policies) if with_policies else None)


def scenario_run(name: str, page_size: int, settings: Mapping[str, Any]) -> Run:
    """A scenario of the reference implementation, under the checks that the fuzzer has: events judged, pages counted and sums
    asked for after every step, outputs computed anew, all back in the end."""
    import torch
    from policies import PolicyBroken, watched_scheduler

    from kvproof.conformance.fuzz.reference import (
        GivenUpInVain,
        KeptForNobody,
        Requests,
        Telling,
        WrongOutput,
        not_returned,
        require_windows_are_given_back,
    )
    from kvproof.impl.census import CensusViolation
    from kvproof.impl.scenario_player import scenario_config
    from kvproof.impl.scenarios import SCENARIOS
    from kvproof.impl.scheduler import Scheduler
    from kvproof.impl.simulated_users import SimulatedUsers, Stuck, to_its_end

    torch.set_num_threads(1)  # the tensors are tiny, and threads do not survive a fork
    strict = {"check_every_step": True, "census_every_step": True}
    config = scenario_config(name, page_size=page_size, settings={**strict, **settings})

    def run(asks_policies: bool, new_judging: NewJudging) -> Passed:
        kept = _Kept(new_judging)
        judging = kept(header_of(config, name))

        def playing() -> None:
            class Watched(Scheduler):
                def launch_step(self) -> None:
                    super().launch_step()
                    requests.require_room_was_lacking()
                    require_windows_are_given_back(self.state)

            scheduler = (
                watched_scheduler(Watched, config, judging.see)
                if asks_policies
                else Watched(config, Telling(judging.see))
            )
            requests = Requests(scheduler)

            def after_step(_: object) -> None:
                if judging.finding is not None:
                    raise Violated

            class Remembering(SimulatedUsers):
                def send_turn(self, *args: Any, **kwargs: Any) -> str:
                    rid = super().send_turn(*args, **kwargs)
                    requests.remember()
                    return rid

                def send(self, *args: Any, **kwargs: Any) -> str:
                    rid = super().send(*args, **kwargs)
                    requests.remember()
                    return rid

            script = Remembering(scheduler, random.Random(config.seed), after_step)
            try:
                with to_its_end(scheduler):
                    SCENARIOS[name].run(script)
                    script.drain()
                    scheduler.check()
            except Stuck as error:
                raise Wrong(STUCK, str(error), f"{STUCK}: I18") from error
            requests.compare_outputs()
            if missing := not_returned(scheduler.state):
                raise Wrong(LEAK, missing, LEAK)

        with alarms(), alarm(SCENARIO_SECONDS):
            trouble = trouble_in(
                playing,
                judging,
                (CensusViolation, WrongOutput, GivenUpInVain, KeptForNobody, PolicyBroken),
                SCENARIO_SECONDS,
            )
        return Passed(trouble, kept.told if trouble is None else "")

    called = json.dumps(dict(settings), sort_keys=True) if settings else ""
    return Run(
        f"scenario {name}, page size {page_size}{', ' if called else ''}{called}",
        partial(run, False),
        "device" if "pools" in settings else "",
        partial(run, True),
    )


AT_ONE_TOKEN_A_PAGE = ("storm", "rounds", "retract", "window", "window-in-flight")
ON_THE_DEVICE = ("many-sessions", "chunked", "retract", "pressure", "storm", "rounds", "window", "window-in-flight")
"""Scenarios that are played with the pools on the device's side as well, on tensors of the CPU."""


def reference_runs(seed: int, schedules: int, with_a_model: int) -> list[Run]:
    """`schedules` by chance, and so many more in which a model runs, so that outputs can be computed anew, and with a window."""
    from policies import PolicedReference

    from kvproof.conformance.fuzz.reference import Reference
    from kvproof.impl.scenarios import SCENARIOS
    from mutation import rare_schedules

    target, strict = Reference(), PolicedReference()
    runs = [schedule_run(f"seed {n}", schedule, target, strict) for n, schedule in enumerate(target.seeds)]
    runs += [scenario_run(name, 4, {}) for name in SCENARIOS]
    runs += [scenario_run(name, 4, {"pools": "device"}) for name in ON_THE_DEVICE]
    chosen: Sequence[tuple[int, dict[str, Setting]]] = (
        (schedules, {}),
        (with_a_model, {"forward": "transformer"}),
        (with_a_model, {"window": "page", "page_size": 4}),
    )
    runs += [scenario_run(name, 1, {}) for name in AT_ONE_TOKEN_A_PAGE]
    for count, pinned in chosen:
        runs += _by_chance(target, count, seed, pinned, with_policies=strict)
    runs += [schedule_run(name, schedule, target, strict) for name, schedule in rare_schedules.of_the_reference(target)]
    return runs


def sglang_runs(seed: int, schedules: int) -> list[Run]:
    from kvproof.conformance.fuzz.sglang import SGLang

    target = SGLang()
    seeds = [
        schedule_run(f"seed {n}", schedule.model_copy(update={"profile": target.profile}), target)
        for n, schedule in enumerate(target.seeds)
    ]
    chosen: Sequence[dict[str, Setting]] = (
        {},
        {"drafts": 3},
        {"window": "page", "page_size": 2},
        {"retract_interval": 2, "page_size": 4},
    )
    return seeds + [
        run
        for pinned in chosen
        for run in _by_chance(target, schedules // len(chosen), seed, pinned, profile=target.profile)
    ]


def _by_chance(
    target: Target,
    count: int,
    seed: int,
    pinned: Mapping[str, Setting],
    profile: str | None = None,
    with_policies: Target | None = None,
) -> list[Run]:
    found = drawn(target, count, seed, pinned) if count else []
    words = "".join(f", {name} {value}" for name, value in pinned.items())
    return [
        schedule_run(
            f"schedule {n} of seed {seed}{words}",
            schedule.model_copy(update={"profile": profile}),
            target,
            with_policies,
        )
        for n, schedule in enumerate(found)
    ]


def can_be_played(run: Run, new_judging: NewJudging) -> Passed | None:
    """How it goes without a mutant, first what is found; None where its settings cannot work."""
    try:
        passed = run.play(new_judging)
        if passed.trouble is None and run.with_policies is not None:
            strictly = run.with_policies(new_judging)
            return strictly if strictly.trouble is not None else passed
        return passed
    except UserError:
        return None
