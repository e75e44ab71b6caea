"""Runs one scenario on the installed SGLang and writes its trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kvproof.conformance.adapters.driven_settings import settings_of_user
from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.adapters.scenario_run import DrivenResult, TellEvents, run_to_its_end
from kvproof.conformance.adapters.sglang import draft_model
from kvproof.conformance.adapters.sglang.engine import import_sglang
from kvproof.conformance.adapters.sglang.header import header_of
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.recorder import Recorder
from kvproof.conformance.adapters.sglang.scenario import Scenario
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.errors import unknown
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.trace import FINISHED, Header

# A page is 1 or 4 tokens in most runs; for large pages the pool and the context grow with them.
LEAST_PAGES = 64
LEAST_CONTEXT_PAGES = 16


@dataclass(frozen=True)
class SGLangResult(DrivenResult):
    release: str
    stray_frees: int
    """pages freed outside every watched action; the trace counts them as dropped"""


def record_scenario(
    name: str,
    out: str | Path,
    *,
    page_size: int = 1,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    progress: TellEvents | None = None,
) -> SGLangResult:
    """Run scenario `name` and write its trace to `out`. Needs an environment in which SGLang can be imported.

    `settings` overrides fields of `Settings`. What SGLang does wrong is recorded, not raised: an assertion of its own ends
    the trace with the reason `crashed: ...`, and requests that it never brings to an end with `stuck: ...`.
    """
    if name not in SCENARIOS:
        raise unknown("scenario of sglang", name, SCENARIOS)
    scenario = SCENARIOS[name]
    wanted = settings_for(scenario, page_size, seed, settings or {})
    with (
        Headless(wanted, checks=scenario.checks) as headless,
        write_trace(out, header_of_run(headless, name)) as writer,
    ):
        if progress is not None:
            headless.on_step = lambda: progress(writer.events)
        with recording(headless, writer) as recorder:
            reason = run_to_its_end(scenario, headless)
            if reason == FINISHED:
                headless.stand_idle()
        writer.close(reason, dropped=recorder.stray_frees)
    return SGLangResult(
        paths=(Path(out),),
        events=writer.events,
        reason=reason,
        release=headless.release.version,
        steps=headless.steps,
        stray_frees=recorder.stray_frees,
    )


class TakesEvents(Protocol):
    def event(self, **fields: Any) -> Any: ...


@contextmanager
def recording(headless: Headless, writer: TakesEvents) -> Iterator[Recorder]:
    """Inside it, what the scheduler does is written at once; an error of the recorder is raised where it happens."""
    assembly = Assembly(headless.settings.page_size)

    def put(record: Any) -> None:
        recorder.page_ids.settle(wait=True)
        for event in assembly.events(record):
            writer.event(**event)

    recorder = Recorder(headless.release, headless.scheduler, put, step=lambda: headless.steps)
    headless.on_check = lambda busy, passed: recorder.check(busy=busy, passed=passed)
    headless.on_idle = recorder.idle
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()
        headless.on_check = lambda busy, passed: None
        headless.on_idle = lambda passes: None


def scenarios_here() -> list[str]:
    """Those that the installed release can run: few have speculation v1, which is drafts without overlap."""
    import_sglang()
    has_version_1 = draft_model.has_version_1()
    return [name for name, wants in SCENARIOS.items() if has_version_1 or wants.overlap or not wants.drafts]


def settings_for(scenario: Scenario, page_size: int, seed: int, overrides: dict[str, Any]) -> Settings:
    """The settings of a run: what the page size asks for, then what the scenario needs, then what the user wants."""
    wanted = settings_of_user(Settings, "sglang", {"page_size": page_size, "seed": seed, **overrides})
    page_size = wanted.page_size
    pages = scenario.pool_pages or max(LEAST_PAGES, -(-Settings.pool_tokens // page_size))
    needs = {
        "pool_tokens": pages * page_size,
        "max_running_requests": scenario.rows or Settings.max_running_requests,
        "chunked_prefill_size": -(-scenario.chunk // page_size) * page_size if scenario.chunk else None,
        "mixed_chunk": scenario.mixed_chunk,
        "overlap": scenario.overlap,
        "window": scenario.window,
        "drafts": scenario.drafts,
        "disable_radix_cache": scenario.disable_radix_cache,
        "context_length": max(Settings.context_length, LEAST_CONTEXT_PAGES * page_size),
    }
    settings = replace(wanted, **{**needs, **overrides})
    settings.require_whole_pages()
    return settings


def header_of_run(headless: Headless, scenario: str) -> Header:
    extra = {**asdict(headless.settings), "seams": headless.release.ways}
    return header_of(headless.release, headless.scheduler, scenario=scenario, extra=extra)
