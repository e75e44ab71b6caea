"""Runs in the environment of sglang-jax: every scenario with a recorder and without one; prints where they differ."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang_jax.headless import Headless
from kvproof.conformance.adapters.sglang_jax.record import settings_for
from kvproof.conformance.adapters.sglang_jax.recorder import Observer, Recorder
from kvproof.conformance.adapters.sglang_jax.scenarios import SCENARIOS


def outcome(name: str, page_size: int, *, recorded: bool) -> tuple[Any, ...]:
    """What a run leaves behind: why it ended, its steps, rows and pools, and what its checks said."""
    scenario, checks, events = SCENARIOS[name], [], []
    with Headless(settings_for(scenario, page_size, 0, {}), counts_chunks=scenario.counts_chunks) as headless:
        headless.on_check = checks.append
        if recorded:
            recorder = Recorder(headless.scheduler, lambda **event: events.append(event), step=lambda: headless.steps)
            recorder.start()
        reason = run_to_its_end(scenario, headless)
        if recorded:
            recorder.stop()
            assert events, name
        rows = headless.scheduler.req_to_token_pool
        pools = Observer(headless.scheduler)
        return (
            reason,
            headless.steps,
            checks,
            list(rows.free_slots),
            rows.req_to_token.tolist(),
            pools.free_lists(),
            pools.terms(),
        )


def main() -> None:
    compared = 0
    for name in SCENARIOS:
        for page_size in (1, 4):
            alone, watched = (outcome(name, page_size, recorded=recorded) for recorded in (False, True))
            if alone != watched:
                print(f"{name} at page size {page_size}: {alone[:3]} alone, {watched[:3]} recorded")
            compared += 1
    print(f"compared {compared}")


if __name__ == "__main__":
    main()
