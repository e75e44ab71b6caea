"""One run of a scenario on a scheduler that is driven in this process: what it may ask for, and how it ends."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kvproof.spec.trace import FINISHED

TellEvents = Callable[[int], Any]
"""Is called with the number of events written so far."""


class NeverIdle(Exception):
    """Requests are left that the scheduler does not bring to an end."""


@dataclass(frozen=True)
class RecordResult:
    paths: tuple[Path, ...]
    """One trace of each rank."""
    events: int
    """Of all of them."""
    reason: str
    """`finished`, or how what is under test broke the run off"""

    @property
    def path(self) -> Path:
        """The trace, or the first rank's."""
        return self.paths[0]


@dataclass(frozen=True)
class DrivenResult(RecordResult):
    """Of a scheduler that is driven step by step."""

    steps: int


class Scenario(Protocol):
    @property
    def run(self) -> Callable[[Any], Any]: ...


class Driven(Protocol):
    @property
    def sources(self) -> Path:
        """The folder of the code under test."""


def run_to_its_end(scenario: Scenario, headless: Driven) -> str:
    """Run the scenario; the reason why it ended. A mistake of ours is raised, one of what is under test is a reason."""
    try:
        scenario.run(headless)
    except NeverIdle as error:
        return f"stuck: {error}"
    except Exception as error:
        if not _raised_in(headless.sources, error):
            raise
        lines = str(error).strip().splitlines()
        return f"crashed: {type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
    return FINISHED


def _raised_in(sources: Path, error: BaseException) -> bool:
    """Whether what is under test rather than an adapter was the last of the two to run."""
    theirs, ours = sources.resolve(), Path(__file__).resolve().parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        folders = Path(frame.filename).resolve().parents
        if theirs in folders or ours in folders:
            return theirs in folders
    return False
