"""What the pytest plugin does for a test: a bounded fuzz, a scenario that is recorded and judged, a recorder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.scenarios import TARGETS, load, require_scenario
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.schedule import Setting
from kvproof.conformance.fuzz.targets import to_play_again
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.report.show_replay import verdict_lines
from kvproof.conformance.traces.json_lines import TraceWriter
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.trace import Header

DEFAULT_SECONDS = 10.0


class Recorder:
    """Writes a trace. Call it with each event as it happens: an object with the fields of docs/events.md."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: TraceWriter | None = None

    def begin(self, header: Header) -> None:
        """`header`: what the events are about, above all the configuration (`kvproof.spec.trace.Header`)."""
        self._writer = write_trace(self.path, header)

    def __call__(self, event: Any) -> None:
        if self._writer is None:
            raise RuntimeError("kvproof_recorder: begin(header) comes before the first event")
        self._writer.event(**vars(event))

    on_event = __call__
    """What an observer of the reference implementation is called."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def check(self, profile: str | None = None) -> None:
        """Replay what was recorded. AssertionError, with the finding, unless it conforms."""
        self.close()
        _require_conforms(self.path, profile)

    def remove(self) -> None:
        _remove(self.path)


def failure_of(
    folder: Path,
    keep: Callable[[str], None],
    *,
    target: str = "reference",
    seconds: float = DEFAULT_SECONDS,
    seed: int = 0,
    settings: Mapping[str, Setting] | None = None,
    faults: Sequence[str] = (),
    scenario: str | None = None,
    page_size: int = 4,
    profile: str | None = None,
) -> str | None:
    """Why a test with the mark fails, None if it does not. `keep` gets the command that plays a finding again."""
    options: dict[str, Any] = {"seed": seed, "settings": dict(settings or {}), "faults": tuple(faults)}
    try:
        if scenario is not None:
            _play_scenario(folder, target, scenario, profile, page_size=page_size, **options)
        else:
            # It needs hypothesis, which a recorded scenario does not.
            from kvproof.conformance.fuzz.bounded import bounded_campaign

            found = bounded_campaign(target, folder, seconds=seconds, profile=profile, **options)
            if found is not None:
                place, lines = found
                keep(to_play_again(target, place))
                return "\n".join(lines)
    except UserError as error:
        return f"kvproof could not run: {error.message}"
    except AssertionError as error:
        return str(error)
    return None


def _play_scenario(folder: Path, target: str, scenario: str, profile: str | None, **options: Any) -> None:
    """Raises AssertionError, with the finding, unless what it did conforms."""
    if target not in TARGETS:
        raise unknown("target with scenarios", target, TARGETS)
    record = load(target, TARGETS[target].adapter).record_scenario
    recorded = record(require_scenario(target, scenario), folder / f"{scenario}.jsonl", **options)
    for trace in recorded.paths:
        _require_conforms(trace, profile)
        _remove(trace)


def _require_conforms(path: Path, profile: str | None) -> None:
    report = replay(path, profile=profile, checker=Chosen())
    if report.verdict != CONFORMS or not report.events:
        raise AssertionError("\n".join(line.plain for line in verdict_lines(report)) or f"{path}: nothing was checked")


def _remove(trace: Path) -> None:
    """The trace, and the folders that were made for it and are empty now."""
    trace.unlink(missing_ok=True)
    for folder in list(trace.parents)[:3]:
        try:
            folder.rmdir()
        except OSError:
            break
