"""Records the reference implementation: plays a scenario or a workload on it and writes what it did as a trace.

The implementation knows nothing of traces. Its events carry the names of docs/events.md, so all that is left to do here is
to write them. torch is imported when something is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.trace_io import TraceWriter
from kvproof.conformance.workload import WorkloadRequest
from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.scenarios import SCENARIOS
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

if TYPE_CHECKING:
    from kvproof.impl.observe import Event

INSTALL = "pip install 'kvproof[reference]'"


class Progress(Protocol):
    def __call__(self, events: int, done: int | None = None, total: int | None = None) -> None: ...


@dataclass(frozen=True)
class RecordResult:
    path: Path
    events: int
    reason: str
    """`finished`, or what went wrong: with a fault on, the implementation may break."""


def record_scenario(
    name: str,
    out: str | Path,
    *,
    page_size: int = 4,
    faults: Sequence[str] = (),
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> RecordResult:
    """Play one scenario and write its trace."""
    require_torch()
    from kvproof.impl.script import play, scenario_config

    if name not in SCENARIOS:
        raise unknown("scenario of reference", name, SCENARIOS)
    require_faults(faults)
    _require_settings(settings or {})
    with _as_user_error():
        config = scenario_config(name, page_size=page_size, seed=seed, faults=tuple(faults), settings=settings)
    return _record(out, config, name, settings or {}, progress, lambda recorder: play(name, config, recorder))


def record_workload(
    requests: Sequence[WorkloadRequest],
    out: str | Path,
    *,
    page_size: int = 16,
    faults: Sequence[str] = (),
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> RecordResult:
    """Drive the implementation with a workload and write its trace. Unless the settings say so, no model runs."""
    require_torch()
    from kvproof.impl.workload_driver import run_workload

    require_faults(faults)
    _require_settings(settings or {})
    chosen = {**_workload_settings(requests, page_size), **(settings or {})}
    with _as_user_error():
        config = EngineConfig(page_size=page_size, seed=seed, faults=tuple(faults), **chosen)

    def drive(recorder: _Recorder) -> None:
        run_workload(requests, config, recorder, recorder.tell_progress)

    return _record(out, config, None, settings or {}, progress, drive)


class _Recorder:
    """Writes each event of the implementation as one record of the trace."""

    def __init__(self, writer: TraceWriter, progress: Progress | None) -> None:
        self._writer = writer
        self._progress = progress

    def on_event(self, event: Event) -> None:
        self._writer.event(**vars(event))
        if self._progress is not None:
            self._progress(self._writer.events)

    def tell_progress(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(self._writer.events, done, total)


def _record(
    out: str | Path,
    config: EngineConfig,
    scenario: str | None,
    settings: Mapping[str, Any],
    progress: Progress | None,
    drive: Callable[[_Recorder], object],
) -> RecordResult:
    _require_device(config.device)
    writer = TraceWriter(out, _header(config, scenario, settings))
    reason = "finished"
    with writer:
        try:
            drive(_Recorder(writer, progress))
        except Exception as error:
            # A fault may break anything, and the trace up to there is what shows it. Without a fault, a crash is a
            # defect of the implementation itself: the trace names it too, and the error goes on to whoever asked.
            reason = f"crashed: {type(error).__name__}: {error}"
            writer.close(reason)
            if not config.faults:
                raise
        writer.close(reason)
    return RecordResult(Path(out), writer.events, reason)


def _header(config: EngineConfig, scenario: str | None, settings: Mapping[str, Any]) -> Header:
    """`extra` holds what is needed to record the same trace again, and what the run was configured to in the end."""
    return Header(
        spec=SPEC_VERSION,
        producer=Producer(name="kvproof-reference", version=version("kvproof"), target="reference"),
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
        extra={
            "faults": list(config.faults),
            "seed": config.seed,
            "settings": dict(settings),
            "engine": asdict(config),
        },
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


def _require_settings(settings: Mapping[str, Any]) -> None:
    from kvproof.impl.script import SETTINGS

    for name in settings:
        if name not in SETTINGS:
            raise unknown("setting of reference", name, SETTINGS)


def require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UserError(f"the reference implementation needs torch: {INSTALL}") from error


def _require_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except Exception as error:  # what torch raises depends on how it was built
        raise UserError(f"device {device!r} is not usable here: {str(error).splitlines()[0]}") from error


@contextmanager
def _as_user_error() -> Iterator[None]:
    """A configuration that the engine refuses is the user's to change."""
    try:
        yield
    except ConfigError as error:
        raise UserError(str(error)) from error
