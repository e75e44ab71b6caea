"""Records the reference implementation: plays a scenario or a workload on it and writes what it did as a trace.

The implementation knows nothing of traces. Its events carry the names of docs/events.md, so all that is left to do here is
to write them. torch is imported when something is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvproof.conformance.adapters.scenario_run import RecordResult
from kvproof.conformance.adapters.workload import WorkloadRequest
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.traces.file_names import of_rank
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.scenarios import SCENARIOS
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

if TYPE_CHECKING:
    from kvproof.impl.observe import Event

_own_version = cache(partial(version, "kvproof"))
"""To look it up takes milliseconds, and a fuzzer makes a header for each schedule."""
RANKS = "ranks"
"""The setting that is no engine's: how many of them there are. They share nothing, and each leaves a trace of its own."""
INSTALL = "pip install 'kvproof[reference]'"
WITHOUT_CUDA = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


Settings = Mapping[str, Any]


class TellRecorded(Protocol):
    def __call__(self, events: int, done: int | None = None, total: int | None = None) -> None: ...


def record_scenario(
    name: str,
    out: str | Path,
    *,
    page_size: int = 4,
    faults: Sequence[str] = (),
    seed: int = 0,
    settings: Settings | None = None,
    progress: TellRecorded | None = None,
) -> RecordResult:
    """Play one scenario and write its trace; with the setting `ranks`, that of each rank."""
    require_torch()
    from kvproof.impl.scenario_player import play, scenario_config

    if name not in SCENARIOS:
        raise unknown("scenario of reference", name, SCENARIOS)

    def configure(of_engine: Settings) -> EngineConfig:
        return scenario_config(name, page_size=page_size, seed=seed, faults=tuple(faults), settings=of_engine)

    def run(config: EngineConfig, recorders: Sequence[_Recorder]) -> None:
        play(name, config, *recorders)

    return _record(configure, run, out, name, faults, settings or {}, progress)


def record_workload(
    requests: Sequence[WorkloadRequest],
    out: str | Path,
    *,
    page_size: int = 16,
    faults: Sequence[str] = (),
    seed: int = 0,
    settings: Settings | None = None,
    progress: TellRecorded | None = None,
) -> RecordResult:
    """Drive the implementation with a workload and write its trace. Unless the settings say so, no model runs."""
    require_torch()
    from kvproof.impl.workload_driver import run_workload

    def configure(of_engine: Settings) -> EngineConfig:
        chosen = {**_workload_settings(requests, page_size), **of_engine}
        return EngineConfig(page_size=page_size, seed=seed, faults=tuple(faults), **chosen)

    def run(config: EngineConfig, recorders: Sequence[_Recorder]) -> None:
        run_workload(requests, config, recorders, recorders[0].tell_progress)

    return _record(configure, run, out, None, faults, settings or {}, progress)


class _Recorder:
    """Writes each event of the implementation as one record of the trace. `written` tells the events of all ranks."""

    def __init__(self, writer: TraceWriter, progress: TellRecorded | None, written: Callable[[], int]) -> None:
        self._writer = writer
        self._progress = progress
        self._written = written

    def on_event(self, event: Event) -> None:
        self._writer.event(**vars(event))
        if self._progress is not None:
            self._progress(self._written())

    def tell_progress(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(self._written(), done, total)


def _record(
    configure: Callable[[Settings], EngineConfig],
    run: Callable[[EngineConfig, Sequence[_Recorder]], object],
    out: str | Path,
    scenario: str | None,
    faults: Sequence[str],
    settings: Settings,
    progress: TellRecorded | None,
) -> RecordResult:
    """`settings`: those of the user. The header has them, as what is needed to record the same trace again."""
    require_faults(faults)
    _require_settings(settings)
    ranks, of_engine = _ranks_apart(settings)
    try:
        config = configure(of_engine)
    except ConfigError as error:  # what the engine refuses is the user's to change
        raise UserError(str(error)) from error
    _require_device(config.device)
    names = [f"dp{rank}" for rank in range(ranks)] if ranks > 1 else []
    paths = [of_rank(out, name) for name in names] or [Path(out)]
    reason = "finished"
    with ExitStack() as open_files:
        writers = []
        for rank, path in enumerate(paths):
            extra = {"settings": dict(settings), **({"rank": rank} if names else {})}
            writers.append(open_files.enter_context(write_trace(path, header_of(config, scenario, **extra))))

        def written() -> int:
            return sum(writer.events for writer in writers)

        try:
            run(config, [_Recorder(writer, progress, written) for writer in writers])
        except UserError:  # the trace cannot be written: that is no crash of the implementation
            raise
        except Exception as error:
            # A fault may break anything, and the trace up to there is what shows it. Without a fault, a crash is a
            # defect of the implementation itself: the trace names it too, and whoever asked gets the error.
            reason = f"crashed: {type(error).__name__}: {error}"
            for writer in writers:
                writer.close(reason)
            if not faults:
                raise
        for writer in writers:
            writer.close(reason)
    return RecordResult(tuple(paths), written(), reason)


def header_of(config: EngineConfig, scenario: str | None = None, **extra: Any) -> Header:
    """The header of a run of this engine. `extra` holds what it was configured to in the end, too."""
    return Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-reference", version=_own_version(), target="reference"),
        config=Config(
            page_size=config.page_size,
            pool_pages=config.pool_pages,
            rows=config.rows,
            row_width=config.row_width,
            chunked_prefill_size=config.chunked_prefill_size,
            overlap=config.overlap,
            speculation=config.speculation,
            drafts=config.drafts,
            window=config.window,
            window_pages=config.window_pages or 0,
            tree=config.radix_cache,
        ),
        scenario=scenario,
        extra={"faults": list(config.faults), "seed": config.seed, **extra, "engine": asdict(config)},
    )


def _workload_settings(requests: Sequence[WorkloadRequest], page_size: int) -> dict[str, Any]:
    """A row fits the longest conversation. The pool holds half of what full rows would need, so that it gets tight."""
    rows = 16
    lengths: defaultdict[str | int, int] = defaultdict(int)
    for number, request in enumerate(requests):
        conversation = request.session if request.session is not None else number
        lengths[conversation] += request.new_tokens + request.output_tokens
    row_width = max(lengths.values(), default=0) + 1 + page_size
    row_pages = -(-row_width // page_size)
    return {
        "rows": rows,
        "row_width": row_width,
        "pool_pages": max(row_pages + 1, rows * row_pages // 2),
        "chunked_prefill_size": max(1, row_pages // 8) * page_size,
        "forward": "none",
    }


def require_faults(faults: Sequence[str]) -> None:
    from kvproof.impl.faults import FAULTS

    for name in faults:
        if name not in FAULTS:
            raise unknown("fault of reference", name, FAULTS)


def _require_settings(settings: Settings) -> None:
    from kvproof.impl.scenario_player import SETTINGS

    for name in settings:
        if name not in (*SETTINGS, RANKS):
            raise unknown("setting of reference", name, (*SETTINGS, RANKS))


def _ranks_apart(settings: Settings) -> tuple[int, dict[str, Any]]:
    """How many engines there are, and the settings of each."""
    ranks = settings.get(RANKS, 1)
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise UserError(f"{RANKS} {ranks!r}: must be a whole number, 1 or more")
    return ranks, {name: value for name, value in settings.items() if name != RANKS}


def require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"the reference implementation needs torch: {INSTALL} (without CUDA, first: {WITHOUT_CUDA})"
        ) from error


def _require_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except Exception as error:  # what torch raises depends on how it was built
        raise UserError(f"device {device!r} is not usable here: {str(error).splitlines()[0]}") from error
