"""What a scenario is, the table that keeps those of one kind, and the sessions that it drives.

Names are shared with the reference implementation where the meaning is the same. Lengths are tokens; they are chosen small
and odd, so that pages end inside turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.adapters.sglang.headless import Checks, Headless


class Session:
    """A streaming session of a client: opened when it is made. It numbers its turns."""

    def __init__(self, headless: Headless, name: str) -> None:
        self._headless, self._name = headless, name
        self.turns = 0
        self.is_open = True
        headless.open(name)

    @property
    def turn(self) -> str:
        """The request id of its latest turn. No id is a prefix of another one: SGLang aborts by prefix."""
        return f"{self._name}/{self.turns:02}"

    def send(self, new_tokens: int = 7, output: int = 5, **options: bool) -> None:
        self.send_tokens(self._headless.tokens(new_tokens), output, **options)

    def send_tokens(self, input_ids: list[int], output: int, **options: bool) -> None:
        self.turns += 1
        self._headless.send_tokens(self.turn, input_ids, output, session=self._name, **options)

    def whole_turn(self, new_tokens: int = 7, output: int = 5, **options: bool) -> None:
        self.send(new_tokens, output, **options)
        self._headless.drain()

    def start_turn(self, new_tokens: int = 7, output: int = 12, steps: int = 4) -> None:
        """Send a turn and stop in the middle of its decode."""
        self.send(new_tokens, output)
        self._headless.run(steps)

    def ask_to_abort(self) -> None:
        """The latest turn."""
        self._headless.abort(self.turn)

    def abort(self) -> None:
        """Abort the latest turn, and wait until nothing runs."""
        self.ask_to_abort()
        self._headless.drain()

    def close(self) -> None:
        self._headless.close(self._name)
        self.is_open = False


@dataclass(frozen=True)
class Scenario:
    summary: str
    run: Callable[[Headless], None]
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

    def add(
        self, name: str, summary: str, *, sessions: int = 1, **needs: Any
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorates the function that drives the scenario. It gets the scheduler, and so many sessions: they are opened before
        it, and closed after it where it has not closed them."""

        def keep(drive: Callable[..., None]) -> Callable[..., None]:
            def run(headless: Headless) -> None:
                opened = [Session(headless, f"s{number}") for number in range(1, sessions + 1)]
                drive(headless, *opened)
                if opened:
                    close_all(headless, *opened)

            self[name] = Scenario(summary, run, **needs)
            return drive

        return keep


def close_all(headless: Headless, *sessions: Session) -> None:
    for session in sessions:
        if session.is_open:
            session.close()
    headless.drain()
