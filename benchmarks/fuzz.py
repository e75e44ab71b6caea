"""How fast the fuzzer is: what of a step is driving, and what checking; a plain Hypothesis state machine beside it.

`python benchmarks/fuzz.py [--repeats N] [--seconds S]`. Every rate is over processor time of one core, the ways of a repeat one
after the other. Writes benchmarks/results/fuzz.md.

The plain machine is a `RuleBasedStateMachine` over the same acts and settings, each chosen uniformly, nothing else: no subset of
acts, no seeds, no guidance. It draws a schedule rule by rule and plays it in the same way, so that only the choice differs.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from fuzzing.campaigns import drawn, run_campaign
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from measuring import machine, say

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.generate import STEPS
from kvproof.conformance.fuzz.judging import Judging, NewJudging, judging_by
from kvproof.conformance.fuzz.play import Played, play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule

HERE = Path(__file__).parent
PAGE = HERE / "results" / "fuzz.md"
HOW_MANY = 150
HUNTED = ("F22862a", "F22862b", "F22790a", "F22753", "F994a", "F22897")
"""Faults that the plain machine is to find, too: easy ones and hard ones."""
ACTS_OF_THE_PLAIN_ONE = 100


class NoJudging(Judging):
    """Events are made, and nobody looks at them."""

    def see(self, seen: Any) -> None:
        self._seen.append(seen)


class Unchecked(Reference):
    """Its own checks are off."""

    def start(self, *args: Any, **options: Any) -> Any:
        return super().start(*args, **{**options, "own_checks": False})


@dataclass
class Way:
    what: str
    target: Reference
    judging: NewJudging
    seconds: list[float] = field(default_factory=list)
    """Of each repeat."""
    steps: int = 0
    """Of one repeat."""

    def begin(self) -> None:
        self.seconds.append(0.0)
        self.steps = 0

    def run(self, schedule: Schedule) -> None:
        began = time.process_time()
        with suppress(UserError):
            self.steps += play(schedule, self.target, new_judging=self.judging).steps
        self.seconds[-1] += time.process_time() - began

    @property
    def row(self) -> str:
        rates = sorted(self.steps / seconds for seconds in self.seconds)
        micro = statistics.median(self.seconds) / self.steps * 1e6
        return f"| {self.what} | {statistics.median(rates):,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f}) | {micro:.0f} |"


def _settings(how_many: int, **more: Any) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=how_many,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        **more,
    )


def ways_to_play() -> list[Way]:
    compiled = judging_by("compiled", 0)
    return [
        Way("driving alone: the reference, events made, nothing checked", Unchecked(), NoJudging),
        Way("and every page counted", Reference(), NoJudging),
        Way("and every event judged, compiled: **as a campaign does**", Reference(), compiled),
        Way("the same, judged by the interpreted checker", Reference(), Judging),
    ]


def campaign_rate(seconds: float, **pinned: Any) -> tuple[float, float, int]:
    """Steps a second of processor time and of the clock, and schedules, of a whole campaign, drawing and all."""
    began = time.process_time()
    campaign = run_campaign(Reference(), seconds=seconds, seed=1, pinned=pinned, checker="compiled")
    return campaign.steps / (time.process_time() - began), campaign.steps / campaign.elapsed, campaign.schedules


class _Enough(Exception):
    pass


def plain_machine(judge: Callable[[Schedule], None], faults: tuple[str, ...]) -> type[RuleBasedStateMachine]:
    target = Reference()
    settings = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in target.settings.items()})
    numbers = {"new_tokens": st.integers(1, 40), "max_new_tokens": st.integers(1, 40), "shared": st.integers(0, 40)}
    who, priority = st.integers(0, 3), st.integers(0, 2)

    class Plain(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.acts: list[Act] = []
            self.settings: dict[str, Any] = {}

        @initialize(settings=settings)
        def choose(self, settings: dict[str, Any]) -> None:
            self.settings = settings

        @rule(do=st.sampled_from(("open", "launch")))
        def plain(self, do: Any) -> None:
            self.acts.append(Act(do=do))

        @rule(times=st.sampled_from(STEPS))
        def step(self, times: int) -> None:
            self.acts.append(Act(do="step", times=times))

        @rule(do=st.sampled_from(("abort", "retract", "close")), who=who)
        def about(self, do: Any, who: int) -> None:
            self.acts.append(Act(do=do, who=who))

        @rule(who=who, priority=priority, logprob=st.booleans(), **numbers)
        def turn(self, **chosen: Any) -> None:
            self.acts.append(Act(do="turn", **chosen))

        @rule(priority=priority, **numbers)
        def send(self, **chosen: Any) -> None:
            self.acts.append(Act(do="send", **chosen))

        def teardown(self) -> None:
            judge(Schedule(target="reference", faults=faults, settings=self.settings, acts=tuple(self.acts)))

    return Plain


def plain_hunt(fault: str, seconds: float) -> tuple[float | None, int]:
    """Seconds until the plain machine met the fault, None if it did not, and steps a second."""
    target, compiled, began = Reference(), judging_by("compiled", 0), time.monotonic()
    steps, found_after = 0, None

    def judge(schedule: Schedule) -> None:
        nonlocal steps, found_after
        try:
            played: Played = play(schedule, target, new_judging=compiled)
        except UserError:
            return
        steps += played.steps
        if played.trouble is not None and fault in played.trouble.faults and found_after is None:
            found_after = time.monotonic() - began
        if found_after is not None or time.monotonic() - began > seconds:
            raise _Enough

    machine_class, seed = plain_machine(judge, (fault,) if fault else ()), 0
    while found_after is None and time.monotonic() - began <= seconds:
        hypothesis.seed(seed)(machine_class)
        seed += 1
        try:
            run_state_machine_as_test(  # type: ignore[no-untyped-call]
                machine_class, settings=_settings(200, stateful_step_count=ACTS_OF_THE_PLAIN_ONE)
            )
        except _Enough:
            break
    return found_after, int(steps / (time.monotonic() - began))


def hunt(fault: str, seconds: float) -> float | None:
    campaign = run_campaign(
        Reference(),
        seconds=seconds,
        seed=1,
        faults=(fault,),
        checker="compiled",
        is_enough=lambda c: bool(c.naming(fault)),
    )
    return min((found.after_seconds for found in campaign.naming(fault)), default=None)


def repeat_all(ways: Sequence[Way], some: Sequence[Schedule]) -> None:
    """Each schedule by each way in turn: what else the machine does meets all of them."""
    for way in ways:
        way.begin()
    for schedule in some:
        for way in ways:
            way.run(schedule)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one hunt, at most")
    asked = parser.parse_args()

    some, ways = drawn(Reference(), HOW_MANY, seed=5), ways_to_play()
    repeat_all(ways, some[:20])
    for way in ways:
        way.seconds.clear()
    gc.collect()
    gc.freeze()  # as a campaign does
    for repeat in range(asked.repeats):
        say(f"repeat {repeat + 1} of {asked.repeats}")
        repeat_all(ways, some)
    driving, checked = (statistics.median(way.seconds) for way in (ways[0], ways[2]))
    ratios = sorted(c / d - 1 for d, c in zip(ways[0].seconds, ways[2].seconds, strict=True))
    of_processor, of_clock, played = campaign_rate(30, forward="none")
    with_forward, _, _ = campaign_rate(30)
    lines = [
        "# The fuzzer: how fast, and what for",
        "",
        f"Written by `make bench-fuzz`. {machine(f'Hypothesis {hypothesis.__version__}')}; load at the end: "
        f"{os.getloadavg()[0]:.0f}.",
        "",
        f"The same {HOW_MANY} schedules, {ways[0].steps:,} steps, by each way in turn, schedule by schedule, {asked.repeats} "
        "times; steps a second of processor time, median (smallest to largest):",
        "",
        "| way | steps/s | microseconds a step |",
        "| --- | --- | --- |",
        *(way.row for way in ways),
        "",
        f"Checking takes {statistics.median(ratios):.2f} times what driving takes ({ratios[0]:.2f} to {ratios[-1]:.2f}). "
        f"A whole campaign of 30 s without a model (`--set forward=none`), drawing included: "
        f"{of_processor:,.0f} steps/s of processor time, {of_clock:,.0f} by the clock; {played:,} schedules. Of its "
        f"{1e6 / of_processor:.0f} microseconds a step about {(checked - driving) / ways[0].steps * 1e6:.0f} are checking, the "
        "others drawing, driving and looking for rare states. Where one schedule in eight computes a model and its outputs "
        f"anew, as is the default: {with_forward:,.0f} steps/s of processor time.",
        "",
        "## Beside a plain state machine",
        "",
        f"Seconds until a fault is named, at most {asked.seconds:.0f}; one seed each.",
        "",
        "| fault | kvproof fuzz | RuleBasedStateMachine, uniform choice | its steps/s |",
        "| --- | --- | --- | --- |",
    ]
    for fault in HUNTED:
        ours = hunt(fault, asked.seconds)
        theirs, rate = plain_hunt(fault, asked.seconds)
        lines.append(f"| {fault} | {_seconds(ours)} | {_seconds(theirs)} | {rate:,} |")
        say(lines[-1])
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"written: {PAGE.relative_to(HERE.parent)}")


def _seconds(value: float | None) -> str:
    return "not found" if value is None else f"{value:.1f} s"


if __name__ == "__main__":
    main()
