"""What the drivers of real schedulers share: the clients' inbox, made-up tokens, and an event loop run one pass at a time."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from kvproof.conformance.adapters.event_loop import EventLoop
from kvproof.conformance.adapters.scenario_run import NeverIdle
from kvproof.spec.patience import Patience

# The forward never makes up a token that could end a request early: 0 to 2 are reserved, lengths alone decide.
FIRST_ORDINARY_TOKEN, VOCABULARY = 3, 512
# No scenario needs as many: some of them decode several pages.
MANY_STEPS = 2000
# A scheduler that has requests but ran no batch this often will not run them: nothing changes from step to step.
MANY_IDLE_STEPS = Patience().turns


Scheduler = TypeVar("Scheduler", bound="HeadlessScheduler")


class HeadlessScheduler(ABC):
    """One scheduler. A subclass builds `scheduler` and takes hold of its `_loop`.

    `on_step` is called after each step; `on_idle` once MANY_IDLE_STEPS in a row found nothing to do, with that number.
    """

    scheduler: Any
    send_tokens: Callable[..., None]
    """turn, token ids, most new tokens, and options that a subclass names"""
    _loop: EventLoop
    many_steps = MANY_STEPS

    def __init__(self, seed: int) -> None:
        self.on_step: Callable[[], Any] = lambda: None
        self.on_idle: Callable[[int], Any] = lambda passes: None
        self.on_check: Callable[..., Any] = lambda *_: None
        self.steps = self.idle_steps = 0
        self.vocabulary = VOCABULARY
        """Tokens that are made up lie below. Where there are few, many prompts begin alike."""
        self._random = random.Random(seed)
        self._inbox: list[Any] = []
        self._was_idle = False

    def __enter__(self: Scheduler) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.end()

    def tokens(self, count: int) -> list[int]:
        return [self._random.randrange(FIRST_ORDINARY_TOKEN, self.vocabulary) for _ in range(count)]

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, **options: Any) -> None:
        """A request, or a turn, of `new_tokens` random tokens."""
        self.send_tokens(turn, self.tokens(new_tokens), max_new_tokens, **options)

    def step(self) -> bool:
        """One pass of the scheduler's event loop; False if it found nothing to do and checked its memory instead."""
        self.steps += 1
        self._was_idle = False
        inbox, self._inbox = self._inbox, []
        self._loop.one_pass(inbox)
        self.after_pass()
        self.on_step()
        self.idle_steps = self.idle_steps + 1 if self._was_idle and not inbox else 0
        if self.idle_steps == MANY_IDLE_STEPS:
            self.on_idle(self.idle_steps)
        return not self._was_idle

    def after_pass(self) -> None:  # noqa: B027  # a driver may have nothing to do there
        """Between a pass and `on_step`."""

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def drain(self) -> None:
        """Step until nothing runs, waits or arrives; the last step is the idle one that checks the memory."""
        for _ in range(self.many_steps):
            is_idle = not self.step()
            if is_idle and not self.waiting():
                return
            if self.idle_steps >= MANY_IDLE_STEPS:
                raise NeverIdle(f"nothing runs any more, but {', '.join(self.waiting())} still wait")
        raise NeverIdle(f"after {self.many_steps} steps {', '.join(self.running())} still run")

    def stand_idle(self) -> None:
        """Step until so many in a row found nothing to do that whoever still waits, waits for ever.

        No memory check is reported.
        """
        self.on_check = lambda *_: None
        while not self.step() and self.idle_steps < MANY_IDLE_STEPS:
            pass

    def waiting(self) -> list[str]:
        return [req.rid for req in self.scheduler.waiting_queue]

    @abstractmethod
    def running(self) -> list[str]: ...
