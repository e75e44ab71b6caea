"""Runs commands where SGLang lives: in a process of the environment that make_env.py made, on one release."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event, Header

ROOT = Path(__file__).resolve().parents[4]
ENVIRONMENT = ROOT / ".venv-sglang"
RECORD_SCENARIOS, OWN_CHECKS_TOOL = (
    str(ROOT / "tools" / name) for name in ("record_scenarios.py", "sglang_own_checks.py")
)
RELEASES = ("0.5.10.post1", "0.5.11")
# Later ones: only the newest is run often, the others by `make test-sglang-full`.
LATER = ("0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23")
IN_BETWEEN = LATER[:-1]
PAGE_SIZES = (1, 4)
HAVE_SPECULATION_V1 = (*RELEASES, "0.5.12")
SPECULATION_V1 = "matrix-speculation-v1"
"""How the names of its scenarios begin."""


@dataclass(frozen=True)
class Trace:
    path: Path
    header: Header
    events: list[Event]
    reason: str
    dropped: int

    @classmethod
    def read(cls, path: Path) -> Trace:
        reader = read_trace(path)
        events = [record for _, record in reader if isinstance(record, Event)]
        assert reader.end is not None, f"{path} has no end record"
        return cls(path, reader.header, events, reader.end.reason, reader.end.dropped)

    def of(self, *actions: str) -> list[Event]:
        return [event for event in self.events if event.action in actions]


def each_on(releases: Iterable[Any], scenarios: Iterable[str]) -> list[Any]:
    """Every scenario on every release that can run it: as parameters `release, scenario`, with the marks of the release."""
    names = list(scenarios)
    pairs = ((release, name) for release in releases for name in names)
    return [
        pytest.param(release.values[0], name, marks=release.marks)
        for release, name in pairs
        if release.values[0] in HAVE_SPECULATION_V1 or not name.startswith(SPECULATION_V1)
    ]


def often_and_in_full(often: Iterable[str]) -> list[Any]:
    """These releases, and those in between where all are run: as parameters `release`."""
    return [
        *(pytest.param(release, marks=pytest.mark.sglang) for release in often),
        *(pytest.param(release, marks=pytest.mark.sglang_full) for release in IN_BETWEEN),
    ]


EACH_RELEASE = often_and_in_full((*RELEASES, LATER[-1]))
OLDEST_IN_FULL = [
    pytest.param(RELEASES[0], marks=pytest.mark.sglang_full),
    *(pytest.param(release, marks=pytest.mark.sglang) for release in (RELEASES[1], LATER[-1])),
]
"""For what takes minutes and is as in the release after the oldest."""


def called(release: str, function: str, *arguments: Any) -> Any:
    """What `module:function` of this folder gives for these arguments on a release. All of them are JSON."""
    return called_on(site_of(release), function, *arguments)


def called_on(site: Path, function: str, *arguments: Any) -> Any:
    """The same on the SGLang of a folder."""
    module, _, name = function.partition(":")
    script = f"import json, sys, {module}; print(json.dumps({module}.{name}(*json.loads(sys.argv[1]))))"
    return json.loads(run_on(site, "-c", script, json.dumps(arguments, default=str)).splitlines()[-1])


def site_of(release: str) -> Path:
    """The folder of a release in the environment; skips the test where there is none."""
    site = ENVIRONMENT / "site" / release
    if not site.exists():
        pytest.skip(f"no SGLang {release} in {ENVIRONMENT.name}: run `make test-sglang`")
    return site


def run_with_sglang(release: str, *arguments: str) -> str:
    """Run the environment's Python on a release; its output."""
    return run_on(site_of(release), *arguments)


def run_on(site: Path, *arguments: str) -> str:
    """The same on the SGLang of a folder."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(Path(__file__).parent)))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
