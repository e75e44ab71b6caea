"""Speed of the reference scheduler: steps a second with 8 requests that decode, and what the bare runner costs.

    python benchmarks/impl.py [--seconds 2] [--runs 7]

Writes benchmarks/results/impl.md: medians, and the spread from the slowest to the fastest run.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Event
from kvproof.impl.runner import ForwardInput, HashRunner
from kvproof.impl.scheduler import Scheduler

RESULTS = Path(__file__).parent / "results" / "impl.md"
REQUESTS, PAGE_SIZE, INPUT, TARGET = 8, 16, 64, 3_000
ROW_WIDTH = 20_000
POOL_PAGES = REQUESTS * (ROW_WIDTH // PAGE_SIZE + 1)
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "overlap": {"overlap": True},
    "speculation v1, 3 drafts": {"speculation": 1, "drafts": 3},
    "speculation v2, 3 drafts": {"overlap": True, "speculation": 2, "drafts": 3},
    "plain, census every step": {"census_every_step": True},
    "plain, memory check every step": {"check_every_step": True},
}


class Forgets:
    """An observer that reads nothing: what it costs to describe every event."""

    def on_event(self, event: Event) -> None:
        pass


@dataclass(frozen=True)
class Speed:
    name: str
    steps_per_second: list[float]

    @property
    def line(self) -> str:
        median = statistics.median(self.steps_per_second)
        spread = f"{min(self.steps_per_second):,.0f} to {max(self.steps_per_second):,.0f}"
        return f"| {self.name} | {median:,.0f} | {spread} | {1e6 / median:,.0f} |"


def decoding_scheduler(observer: Forgets | None, **settings: object) -> Scheduler:
    """8 requests past their prefill, with output enough for the measurement."""
    config = EngineConfig(
        page_size=PAGE_SIZE,
        pool_pages=POOL_PAGES,
        rows=REQUESTS,
        row_width=ROW_WIDTH,
        forward="none",
        **settings,  # type: ignore[arg-type]
    )
    scheduler = Scheduler(config, observer)
    for number in range(REQUESTS):
        scheduler.submit(f"r{number}", [1 + number] * INPUT, ROW_WIDTH)
    scheduler.step()
    scheduler.step()
    return scheduler


def bare_runner() -> Callable[[], None]:
    """The floor: 8 rows are launched and their tokens taken, and nothing else happens."""
    runner = HashRunner(0)
    rows = list(range(1, REQUESTS + 1))
    runner.launch([ForwardInput(row, 0, [row] * INPUT) for row in rows])
    return lambda: [list(tokens) for tokens in runner.launch((), rows).tokens()] and None


def stepping(observer: Forgets | None, settings: dict[str, object]) -> Callable[[], None]:
    scheduler = decoding_scheduler(observer, **settings)

    def step() -> None:
        scheduler.step()
        assert len(scheduler.state.running) == REQUESTS, "the requests must not end while they are measured"

    return step


def measure(name: str, make: Callable[[], Callable[[], None]], seconds: float, runs: int) -> Speed:
    """Steps per second of processor time: others on the same machine make a run longer, not slower."""
    speeds = []
    for _ in range(runs):
        step, steps = make(), 0
        start = time.process_time()
        while (elapsed := time.process_time() - start) < seconds and steps < 4_000:
            step()
            steps += 1
        speeds.append(steps / elapsed)
    return Speed(name, speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    speeds = [measure("bare runner (floor)", bare_runner, options.seconds, options.runs)]
    for name, settings in SETTINGS.items():
        speeds.append(measure(name, lambda s=settings: stepping(None, s), options.seconds, options.runs))
    speeds.append(
        measure("plain, every event described", lambda: stepping(Forgets(), {}), options.seconds, options.runs)
    )
    write(speeds)
    print(RESULTS.read_text())


def write(speeds: list[Speed]) -> None:
    by_name = {speed.name: statistics.median(speed.steps_per_second) for speed in speeds}
    reached = "reached" if by_name["plain"] >= TARGET else "missed"
    RESULTS.write_text(
        "\n".join(
            [
                "# Speed of the reference scheduler",
                "",
                "Written by `make bench-impl`. Scheduler steps per second of processor time, one core, no model: 8 "
                f"requests decode, page size {PAGE_SIZE}, a pool of {POOL_PAGES:,} pages; each step is 8 decodes and 8 results. "
                "Nothing is recorded unless a line says so.",
                "",
                f"{platform.machine()}, Python {platform.python_version()}. Median, slowest and fastest of the runs.",
                "",
                "| what | steps a second | slowest to fastest | microseconds a step |",
                "| --- | --- | --- | --- |",
                *(speed.line for speed in speeds),
                "",
                f"The floor is what the bare loop of the runner costs: 8 hashed tokens a step. Target: {TARGET:,} steps a "
                f"second in the line `plain`: {reached}.",
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
