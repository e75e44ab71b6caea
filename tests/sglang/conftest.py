"""Runs the recorder where SGLang lives: in a process of the environment that make_env.py made, once per release."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvproof.conformance.trace_io import read_trace
from kvproof.spec.trace import Event, Header

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-sglang"
RELEASES = ("0.5.10.post1", "0.5.11")
PAGE_SIZES = (1, 4)


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


def run_with_sglang(release: str, *arguments: str) -> str:
    """Run the environment's Python on a release; its output."""
    site = ENVIRONMENT / "site" / release
    if not site.exists():
        pytest.skip(f"no SGLang {release} in {ENVIRONMENT.name}: run `make test-sglang`")
    command = [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", *arguments]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def trace_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, int], Trace]:
    """The trace of (release, scenario, page size). Starting SGLang takes seconds, a scenario takes none: all at once."""
    folder = tmp_path_factory.mktemp("traces")
    recorded: set[str] = set()

    def trace(release: str, scenario: str, page_size: int) -> Trace:
        if release not in recorded:
            sizes = map(str, PAGE_SIZES)
            run_with_sglang(release, "-m", "kvproof.conformance.adapters.sglang", str(folder), "--page-size", *sizes)
            recorded.add(release)
        return Trace.read(folder / release / f"{scenario}-p{page_size}.jsonl")

    return trace
