"""What the checks of `kvproof fuzz --target sglang` cost: steps a second with them, and of the bare scheduler.

    PYTHONPATH=tools:benchmarks:.venv-sglang/site/0.5.11 .venv-sglang/bin/python -m fuzzing.sglang_check_cost
        [--schedules N] [--times N]

In one process, in turn: each schedule is played bare (SGLang's own event loop, nothing recorded, nothing checked) and as the
fuzzer plays it (recorded, judged, all checks). To build a scheduler is no step: it is timed on its own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from measuring import machine

from fuzzing.campaigns import drawn
from kvproof.conformance.compiled.choose import CHECKERS, COMPILED
from kvproof.conformance.fuzz.judging import NewJudging, Unjudged, judging_by
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.sglang import SGLang


class Timed:
    """The target, with the time that its starts take; `bare`: nothing is recorded or checked."""

    def __init__(self, target: SGLang, *, bare: bool) -> None:
        self._target, self._bare, self.starting = target, bare, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def start(self, settings: Any, faults: Any, tell: Any, *, own_checks: bool = True) -> Any:
        begin = time.perf_counter()
        run = self._target.start(settings, faults, None if self._bare else tell, own_checks=own_checks)
        self.starting += time.perf_counter() - begin
        return run


@dataclass
class Rates:
    """Steps a second, and seconds of a start, of each time round."""

    bare: list[float] = field(default_factory=list)
    checked: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the bare rate, the median."""
        return statistics.median(c / b for b, c in zip(self.bare, self.checked, strict=True))


def untroubled(target: SGLang, count: int, seed: int) -> list[Schedule]:
    """As the fuzzer draws them; without those that end in a finding, as the bare run would go on behind it."""
    kept: list[Schedule] = []
    for schedule in drawn(target, 20 * count, seed):
        judged = schedule.model_copy(update={"profile": target.profile})
        played = play(judged, target)
        if played.trouble is None and played.steps >= 20:
            kept.append(judged)
        if len(kept) == count:
            break
    return kept


def rates(target: SGLang, played: Sequence[Schedule], times: int, judging: NewJudging) -> Rates:
    measured = Rates()
    for _ in range(times):
        for bare in (True, False):
            steps, timed = 0, Timed(target, bare=bare)
            begin = time.perf_counter()
            for schedule in played:
                steps += play(schedule, timed, new_judging=Unjudged if bare else judging).steps
            (measured.bare if bare else measured.checked).append(steps / (time.perf_counter() - begin - timed.starting))
        measured.start.append(timed.starting / len(played))
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=40)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checker", choices=CHECKERS, default=COMPILED, help="compiled needs kvproof[scale]")
    arguments = parser.parse_args()
    target = SGLang()
    played = untroubled(target, arguments.schedules, arguments.seed)
    judging = judging_by(arguments.checker, 0)
    rates(target, played[:3], 1, judging)
    measured = rates(target, played, arguments.times, judging)
    print(f"SGLang {target.release.version}, {len(played)} schedules, {arguments.times} times; {machine()}")
    for name in ("bare", "checked"):
        values = getattr(measured, name)
        print(f"{name:8} {statistics.median(values):7,.0f} steps/s  ({min(values):,.0f} to {max(values):,.0f})")
    print(f"checked is {measured.share:.0%} of bare; a start takes {statistics.median(measured.start) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
