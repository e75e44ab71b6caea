"""The right traces that are edited: recorded anew from the reference implementation, or kept from real SGLang."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.reference import record_scenario
from referee.cases import Edit
from referee.traces.trace import Trace

REPOSITORY = Path(__file__).parents[3]
GOLDEN = REPOSITORY / "tests" / "golden"
PAGE_SIZE = 4


@dataclass(frozen=True)
class Scenario:
    """A scenario of the reference implementation, played without a model; with `fault`, one of its known bugs."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None


@dataclass(frozen=True)
class Kept:
    """A trace of a real release, and whose rules it is judged by."""

    path: Path
    profile: str | None = None


BASES: dict[str, Scenario | Kept] = {
    "sessions": Scenario("many-sessions"),
    "checked": Scenario("busy-check"),
    "chunks": Scenario("chunked-check"),
    "chunks in flight": Scenario("chunks-in-flight"),
    "retracts": Scenario("retract"),
    "retracts in flight": Scenario("retract", {"overlap": True}),
    "pressure": Scenario("pressure"),
    "storm": Scenario("storm"),
    "storm in flight": Scenario("storm", {"overlap": True}),
    "window": Scenario("window"),
    "rounds in flight": Scenario("rounds"),
    "rounds": Scenario("rounds", {"overlap": False, "speculation": 1, "drafts": 2}),
    "closes": Scenario("close-running"),
    "aborts": Scenario("abort-nth"),
    "queued aborts": Scenario("abort-queued"),
    "ends in flight": Scenario("in-flight"),
    "duplicates": Scenario("duplicates"),
    "busy": Scenario("busy"),
    "too long": Scenario("too-long"),
    "sessions with F20070": Scenario("basic", fault="F20070"),
    "checks with F22213": Scenario("busy-check", fault="F22213"),
    "aborts with F22790d": Scenario("abort-nth", fault="F22790d"),
    "retracts with S0511a": Scenario("retract", fault="S0511a"),
    "rounds with F21875c": Scenario("rounds", fault="F21875c"),
    "duplicates with F994a": Scenario("duplicates", fault="F994a"),
    "sglang 0.5.11": Kept(GOLDEN / "sglang-0.5.11-cpu" / "basic.jsonl.gz"),
    "sglang 0.5.11 window": Kept(GOLDEN / "sglang-0.5.11-cpu" / "matrix-window-overlap.jsonl.gz"),
    "sglang 0.5.23": Kept(GOLDEN / "sglang-0.5.23" / "busy-check-p1.jsonl.gz", "sglang-0.5.23"),
}


@dataclass(frozen=True)
class Bases:
    """The right traces, as text, in `folder`."""

    folder: Path

    def record(self) -> None:
        """Write all of them: before the judging processes begin, because the reference implementation loads torch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, base in BASES.items():
            if isinstance(base, Kept):
                self._path(name).write_bytes(gzip.decompress(base.path.read_bytes()))
            else:
                faults = [base.fault] if base.fault is not None else []
                settings = {"forward": "none", **base.settings}
                record_scenario(base.name, self._path(name), page_size=PAGE_SIZE, faults=faults, settings=settings)

    def right(self, name: str) -> str:
        return self._path(name).read_text(encoding="utf-8")

    def edited(self, case: Edit) -> str:
        """The text of the altered trace. Raises ValueError if nothing was altered."""
        right = self.right(case.base)
        trace = Trace(right)
        untouched = trace.text()
        case.change(trace)
        if trace.text() == untouched:
            raise ValueError(f"{case.name} changes nothing in {case.base!r}")
        return trace.text()

    def profile(self, name: str) -> str | None:
        base = BASES[name]
        return base.profile if isinstance(base, Kept) else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.jsonl"
