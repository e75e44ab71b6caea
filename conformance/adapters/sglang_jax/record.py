"""Runs one scenario on the checkout of sglang-jax that the environment names, and writes its trace."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.trace_io import TraceWriter
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

from .checkout import checkout
from .headless import Headless, NeverIdle
from .observe import full_pool
from .recorder import Recorder
from .scenarios import SCENARIOS, Scenario
from .settings import Settings

# For large pages the context grows with them.
LEAST_CONTEXT_PAGES = 64

Progress = Callable[[int], Any]


@dataclass(frozen=True)
class RecordResult:
    path: Path
    events: int
    reason: str
    """`finished`, or how the checkout under test broke the run off"""

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,)


def record_scenario(
    name: str,
    out: str | Path,
    *,
    page_size: int = 1,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> RecordResult:
    """Run scenario `name` and write its trace to `out`. `settings` overrides fields of `Settings`."""
    if name not in SCENARIOS:
        raise unknown("scenario of sglang-jax", name, SCENARIOS)
    scenario = SCENARIOS[name]
    wanted = settings_for(scenario, page_size, seed, settings or {})
    with Headless(wanted, counts_chunks=scenario.counts_chunks) as headless:
        recorder = Recorder(headless.scheduler, lambda **event: writer.event(**event), step=lambda: headless.steps)
        with TraceWriter(out, header_of(headless, recorder, name)) as writer:
            headless.on_check = recorder.check
            if progress is not None:
                headless.on_step = lambda: progress(writer.events)
            recorder.start()
            try:
                reason = run_to_its_end(scenario, headless)
            finally:
                recorder.stop()
            writer.close(reason, dropped=len(recorder.stray_frees))
    return RecordResult(path=Path(out), events=writer.events, reason=reason)


def run_to_its_end(scenario: Scenario, headless: Headless) -> str:
    """Run the scenario; the reason why it ended. A mistake of ours is raised, one of the checkout is a reason."""
    try:
        scenario.run(headless)
    except NeverIdle as error:
        return f"stuck: {error}"
    except Exception as error:
        if not _raised_in_the_checkout(error):
            raise
        lines = str(error).strip().splitlines()
        return f"crashed: {type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
    return "finished"


def settings_for(scenario: Scenario, page_size: int, seed: int, overrides: dict[str, Any]) -> Settings:
    """The settings of a run: what the scenario needs, for this page size, then what the user wants."""
    known = [field.name for field in fields(Settings)]
    for key in overrides:
        if key not in known:
            raise unknown("setting of sglang-jax", key, sorted(known))
    page_size = overrides.get("page_size", page_size)
    settings = Settings(
        **{
            "page_size": page_size,
            "seed": seed,
            "pool_tokens": scenario.pool_pages * page_size,
            "chunked_prefill_size": scenario.chunk_pages * page_size if scenario.chunk_pages else None,
            "mixed_chunk": scenario.mixed_chunk,
            "overlap": scenario.overlap,
            "window": scenario.window_pages * page_size,
            "context_length": max(Settings.context_length, LEAST_CONTEXT_PAGES * page_size),
            "disable_radix_cache": scenario.disable_radix_cache,
            **overrides,
        }
    )
    for key in ("pool_tokens", "chunked_prefill_size"):
        tokens = getattr(settings, key)
        if tokens is not None and tokens % page_size:
            raise UserError(f"{key} {tokens} is no multiple of page_size {page_size}")
    return settings


def header_of(headless: Headless, recorder: Recorder, scenario: str) -> Header:
    from sgl_jax.srt.managers.schedule_batch import Req

    settings, scheduler = headless.settings, headless.scheduler
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
            tree=recorder.observe.has_tree,
        ),
        scenario=scenario,
        gaps=recorder.observe.gaps(Req),
        extra=settings.as_dict(),
    )


def _raised_in_the_checkout(error: BaseException) -> bool:
    """Whether sglang-jax rather than this adapter was the last of the two to run."""
    theirs, ours = checkout(), Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folders = Path(frame.filename).resolve().parents
        if theirs in folders or ours in folders:
            return theirs in folders
    return False
