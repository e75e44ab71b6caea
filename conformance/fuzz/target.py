"""What a fuzzer needs of a target: a class of its own for each server, which says which settings there are and starts a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.spec.trace import Header

Tell = Callable[[Any], None]
"""Is given each event as it happens: an object with the fields of docs/events.md."""


class TargetRun(Protocol):
    """One server under test, from its start. Names are unique in a run."""

    header: Header

    def open(self, session: str) -> None: ...

    def turn(
        self,
        session: str,
        turn: str,
        new_tokens: int,
        max_new_tokens: int,
        *,
        shared: int,
        logprob: bool,
        priority: int,
    ) -> None:
        """A turn that appends to its session; `session` None: an ordinary request."""

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, *, shared: int, priority: int) -> None:
        """An ordinary request."""

    def abort(self, turn: str) -> None: ...

    def retract(self, turn: str) -> None:
        """Force a running request back to the queue; nothing where it does not run."""

    def close(self, session: str) -> None: ...

    def launch(self) -> None:
        """The first half of a step, so that users can come between the halves; nothing where a step is one."""

    def step(self) -> None:
        """One step of the scheduler, or the second half of one."""

    def unfinished(self) -> list[str]:
        """Requests that are not over, the running ones last."""

    def not_returned(self) -> str | None:
        """At the end, when all is closed: what did not come back, in words."""

    def stop(self) -> None: ...


class Target(Protocol):
    """What is fuzzed. A class that inherits from it need not say what has a default."""

    name: str
    settings: Mapping[str, Sequence[Setting]]
    """The values of each setting that are worth trying, from the tamest to the most hostile."""
    seeds: Sequence[Schedule]
    """Schedules that are known to be worth playing, if any: others are drawn around them."""
    acts: Sequence[str]
    """What can be done to it, of `schedule.Do`."""
    profile: str | None = None
    """Whose rules judge it unless the user says so, as in `kvproof replay --profile`; None: the model's own."""
    sessions_may_fill_it: bool = False
    """Whether what an idle session holds stays its own until it is closed, whoever waits for it."""
    own_errors: tuple[type[Exception], ...]
    """What it raises where it finds something wrong with itself."""

    def page_size(self, settings: Mapping[str, Setting]) -> int: ...

    def longest(self, settings: Mapping[str, Setting]) -> int:
        """Tokens that a row holds."""

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell, *, own_checks: bool = True
    ) -> TargetRun:
        """`own_checks`: whether it looks for mistakes itself. Raises UserError if the settings cannot work."""
