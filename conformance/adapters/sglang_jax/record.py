"""Runs one scenario on the checkout of sglang-jax that the environment names, and writes its trace."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.driven_settings import settings_of_user
from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.adapters.row_pages import full_pool
from kvproof.conformance.adapters.scenario_run import DrivenResult, TellEvents, run_to_its_end
from kvproof.conformance.adapters.sglang_jax.headless import Headless
from kvproof.conformance.adapters.sglang_jax.recorder import Recorder
from kvproof.conformance.adapters.sglang_jax.scenarios import SCENARIOS, Scenario
from kvproof.conformance.adapters.sglang_jax.settings import Settings
from kvproof.conformance.errors import unknown
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import FINISHED, Config, Header, Producer

# For large pages the context grows with them.
LEAST_CONTEXT_PAGES = 64


def record_scenario(
    name: str,
    out: str | Path,
    *,
    page_size: int = 1,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    progress: TellEvents | None = None,
) -> DrivenResult:
    """Run scenario `name` and write its trace to `out`. `settings` overrides fields of `Settings`."""
    if name not in SCENARIOS:
        raise unknown("scenario of sglang-jax", name, SCENARIOS)
    scenario = SCENARIOS[name]
    wanted = settings_for(scenario, page_size, seed, settings or {})
    assembly = Assembly(wanted.page_size)

    def put(**record: Any) -> None:
        for event in assembly.events(record):
            writer.event(**event)

    with Headless(wanted, counts_chunks=scenario.counts_chunks) as headless:
        recorder = Recorder(headless.scheduler, put, step=lambda: headless.steps)
        with TraceWriter(out, header_of(headless, recorder, name)) as writer:
            headless.on_check, headless.on_idle = recorder.check, recorder.idle
            if progress is not None:
                headless.on_step = lambda: progress(writer.events)
            recorder.start()
            try:
                reason = run_to_its_end(scenario, headless)
                if reason == FINISHED:
                    headless.stand_idle()
            finally:
                recorder.stop()
            writer.close(reason, dropped=len(recorder.stray_frees))
    return DrivenResult((Path(out),), writer.events, reason, headless.steps)


def scenarios_here() -> list[str]:
    return list(SCENARIOS)


def settings_for(scenario: Scenario, page_size: int, seed: int, overrides: dict[str, Any]) -> Settings:
    """The settings of a run: what the scenario needs, for this page size, then what the user wants."""
    wanted = settings_of_user(Settings, "sglang-jax", {"page_size": page_size, "seed": seed, **overrides})
    page_size = wanted.page_size
    needs = {
        "pool_tokens": scenario.pool_pages * page_size,
        "chunked_prefill_size": scenario.chunk_pages * page_size if scenario.chunk_pages else None,
        "mixed_chunk": scenario.mixed_chunk,
        "overlap": scenario.overlap,
        "max_running_requests": scenario.max_running_requests,
        "window": scenario.window_pages * page_size,
        "context_length": max(Settings.context_length, LEAST_CONTEXT_PAGES * page_size),
        "disable_radix_cache": scenario.disable_radix_cache,
    }
    settings = replace(wanted, **{**needs, **overrides})
    settings.require_whole_pages()
    return settings


def header_of(headless: Headless, recorder: Recorder, scenario: str) -> Header:
    from sgl_jax.srt.managers.schedule_batch import Req

    settings, scheduler = headless.settings, headless.scheduler
    window_pool = recorder.observe.window_pool
    return Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-sglang-jax", version=version("kvproof"), target="sglang-jax"),
        config=Config(
            page_size=settings.page_size,
            pool_pages=full_pool(scheduler.token_to_kv_pool_allocator).size // settings.page_size,
            rows=scheduler.req_to_token_pool.size,
            row_width=scheduler.req_to_token_pool.req_to_token.shape[1],
            chunked_prefill_size=settings.chunked_prefill_size,
            overlap=settings.overlap,
            window=settings.window,
            window_pages=window_pool.allocator.size // settings.page_size if window_pool is not None else 0,
            tree=recorder.observe.has_tree,
        ),
        scenario=scenario,
        gaps=recorder.observe.gaps(Req),
        extra=asdict(settings),
    )
