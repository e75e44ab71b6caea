"""What a scenario is, the table that keeps those of one kind, and what most of them do.

Names are shared with the reference implementation where the meaning is the same. Lengths are tokens; they are chosen small
and odd, so that pages end inside turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.sglang.headless import Checks, Headless

Schedule = Callable[[Headless], None]


@dataclass(frozen=True)
class Scenario:
    summary: str
    run: Schedule
    checks: Checks = "idle"
    """Memory checks are read when idle only, so that a known false alarm of the busy check hides nothing else."""
    chunk: int | None = None
    """tokens of one prefill chunk, at least; it is rounded up to whole pages"""
    pool_pages: int | None = None
    rows: int | None = None
    mixed_chunk: bool = False
    overlap: bool = False
    window: int = 0
    drafts: int = 0
    disable_radix_cache: bool = False


class ScenarioTable(dict[str, Scenario]):
    """The scenarios of one kind, by name."""

    def add(self, name: str, summary: str, **needs: Any) -> Callable[[Schedule], Schedule]:
        """Decorates the function that drives the scenario."""

        def keep(run: Schedule) -> Schedule:
            self[name] = Scenario(summary, run, **needs)
            return run

        return keep


def turn(session: str, number: int) -> str:
    """A request id that is no prefix of another one: SGLang aborts by prefix."""
    return f"{session}/{number:02}"


def whole_turn(h: Headless, session: str, number: int, new_tokens: int = 7, output: int = 5) -> None:
    h.send(turn(session, number), new_tokens, output, session=session)
    h.drain()


def start_turn(h: Headless, session: str, number: int, new_tokens: int = 7, output: int = 12, steps: int = 4) -> None:
    """Send a turn and stop in the middle of its decode."""
    h.send(turn(session, number), new_tokens, output, session=session)
    h.run(steps)


def close_all(h: Headless, *sessions: str) -> None:
    for session in sessions:
        h.close(session)
    h.drain()
