"""The pytest plugin: a mark that runs a bounded fuzz or a recorded scenario before a test, and a recorder for other tests.

    import kvproof

    @kvproof.conformance(target="my_module:factory", seconds=20, settings={"page_size": 4})
    def test_the_fix_holds() -> None: ...

    def test_by_hand(kvproof_recorder) -> None:
        kvproof_recorder.begin(header)           # then `kvproof_recorder(event)` for each event
        kvproof_recorder.check()                 # the model allows them all

pytest loads it wherever kvproof is installed, so nothing is imported here before a test asks for it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvproof.conformance.fuzz.schedule import Setting
    from kvproof.conformance.traces.trace_io import TraceWriter
    from kvproof.spec.trace import Header

MARK, INI = "kvproof_conformance", "kvproof_dir"
KEPT = pytest.StashKey["list[str]"]()
FAILED = pytest.StashKey[bool]()
DEFAULT_SECONDS = 10.0


def conformance(**options: Any) -> pytest.MarkDecorator:
    """`@kvproof.conformance(...)`: before the test, its target is fuzzed for a while, or plays a scenario, and is judged.

    `target`: as for `kvproof fuzz`. `seconds`, `seed`, `settings`, `faults`: of the search. `scenario`: instead of a search, one
    by name (`kvproof list scenarios`) on reference, sglang or sglang-jax. `page_size`: of the scenario. `profile`: the rules.
    """
    return getattr(pytest.mark, MARK)(**options)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "where kvproof leaves findings and traces of failed tests", default="out/kvproof")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(target, seconds, seed, settings, faults, scenario, page_size, profile): kvproof.conformance"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    mark = item.get_closest_marker(MARK)
    if mark is not None:
        if mark.args:
            pytest.fail("@kvproof.conformance takes its options by name, e.g. target='reference'", pytrace=False)
        _checked(item, **mark.kwargs)


@pytest.hookimpl(hookwrapper=True)  # the newer kind of wrapper would break older releases of pytest
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        item.stash[FAILED] = True
        if kept := item.stash.get(KEPT, []):
            report.sections.append(("kvproof", "\n".join(kept)))


@pytest.fixture
def kvproof_recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """A recorder. Its trace stays if the test fails, and the report says where; else it is removed."""
    recorder = Recorder(_folder_of(request.node) / "trace.jsonl")
    request.node.stash.setdefault(KEPT, []).extend(
        [f"trace: {recorder.path}", f"kvproof replay {shlex.quote(str(recorder.path))}"]
    )
    yield recorder
    recorder.close()
    if not request.node.stash.get(FAILED, False):
        _remove(recorder.path)


class Recorder:
    """Writes a trace. Call it with each event as it happens: an object with the fields of docs/events.md."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: TraceWriter | None = None

    def begin(self, header: Header) -> None:
        """`header`: what the events are about, above all the configuration (`kvproof.spec.trace.Header`)."""
        from kvproof.conformance.traces.trace_io import write_trace

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


def _checked(
    item: pytest.Item,
    target: str = "reference",
    seconds: float = DEFAULT_SECONDS,
    seed: int = 0,
    settings: Mapping[str, Setting] | None = None,
    faults: Sequence[str] = (),
    scenario: str | None = None,
    page_size: int = 4,
    profile: str | None = None,
) -> None:
    from kvproof.conformance.errors import UserError

    folder = _folder_of(item)
    try:
        if scenario is not None:
            _play_scenario(
                folder / f"{scenario}.jsonl", target, scenario, page_size, tuple(faults), seed, settings, profile
            )
        else:
            _fuzz(item, folder, target, seconds, seed, dict(settings or {}), tuple(faults), profile)
    except UserError as error:
        pytest.fail(f"kvproof could not run: {error.message}", pytrace=False)
    except AssertionError as error:
        pytest.fail(str(error), pytrace=False)


def _fuzz(
    item: pytest.Item,
    folder: Path,
    target: str,
    seconds: float,
    seed: int,
    settings: dict[str, Setting],
    faults: tuple[str, ...],
    profile: str | None,
) -> None:
    from kvproof.conformance.fuzz.bounded import bounded_campaign
    from kvproof.conformance.fuzz.target import to_play_again

    found = bounded_campaign(
        target, folder, seconds=seconds, seed=seed, settings=settings, faults=faults, profile=profile
    )
    if found is not None:
        place, lines = found
        item.stash.setdefault(KEPT, []).append(to_play_again(target, place))
        raise AssertionError("\n".join(lines))


def _play_scenario(
    path: Path,
    target: str,
    scenario: str,
    page_size: int,
    faults: tuple[str, ...],
    seed: int,
    settings: Mapping[str, Setting] | None,
    profile: str | None,
) -> None:
    from kvproof.conformance.adapters.scenarios import TARGETS, load, require_scenario
    from kvproof.conformance.errors import unknown

    if target not in TARGETS:
        raise unknown("target with scenarios", target, TARGETS)
    record = load(target, TARGETS[target].adapter).record_scenario
    options = {"page_size": page_size, "faults": faults, "seed": seed, "settings": dict(settings or {})}
    recorded = record(require_scenario(target, scenario), path, **options)
    for trace in recorded.paths:
        _require_conforms(trace, profile)
        _remove(trace)


def _require_conforms(path: Path, profile: str | None) -> None:
    from kvproof.conformance.replay.replay import CONFORMS, replay
    from kvproof.conformance.report.show_replay import verdict_lines

    report = replay(path, profile=profile)
    if report.verdict != CONFORMS or not report.events:
        raise AssertionError("\n".join(line.plain for line in verdict_lines(report)) or f"{path}: nothing was checked")


def _folder_of(item: pytest.Item) -> Path:
    """The test's own, by its name."""
    return item.config.rootpath / item.config.getini(INI) / re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")


def _remove(trace: Path) -> None:
    """The trace, and the folders that were made for it and are empty now."""
    trace.unlink(missing_ok=True)
    for folder in list(trace.parents)[:3]:
        try:
            folder.rmdir()
        except OSError:
            break
