"""Targets that go wrong in ways that take a process along: at the first step after an input of three tokens or more.

`--target hostile_target:exits`, with this folder on PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.target import Target, Tell
from kvproof.impl.observe import Event
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import Config, Header, Producer

EXIT_CODE = 7


def hang_in_c() -> None:
    """No signal is looked at before it ends, which it does not."""
    deque(repeat(0), maxlen=0)


class Hostile(Target):
    """Takes inputs and forgets them, but for one that it does not survive."""

    settings: Mapping[str, Sequence[Setting]] = {"page_size": (1, 4), "odd": (False, True)}
    acts = ("open", "turn", "send", "step", "abort", "close")
    seeds: Sequence[Schedule] = ()
    own_errors: tuple[type[Exception], ...] = ()

    def __init__(self, name: str, goes_wrong: Callable[[], object]) -> None:
        self.name = f"hostile_target:{name}"
        self.goes_wrong = goes_wrong

    def page_size(self, settings: Mapping[str, Setting]) -> int:
        return 1

    def longest(self, settings: Mapping[str, Setting]) -> int:
        return 16

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell, *, own_checks: bool = True
    ) -> HostileRun:
        return HostileRun(self.goes_wrong, tell)


class HostileRun:
    header = Header(
        spec=SPEC_VERSION,
        producer=Producer(name="test", version="0", target="hostile"),
        config=Config(page_size=1, pool_pages=8, rows=2, row_width=32),
    )

    def __init__(self, goes_wrong: Callable[[], object], tell: Tell) -> None:
        self._goes_wrong, self._tell = goes_wrong, tell
        self._is_armed = False

    def open(self, session: str) -> None:
        self._tell(Event("open", 0, session=session))

    def turn(self, session: str, turn: str, new_tokens: int, max_new_tokens: int, **_: Any) -> None:
        self.send(turn, new_tokens, max_new_tokens)

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, **_: Any) -> None:
        self._is_armed |= new_tokens >= 3

    def step(self) -> None:
        if self._is_armed:
            print("last words")
            self._goes_wrong()

    def abort(self, turn: str) -> None:
        pass

    def close(self, session: str) -> None:
        self._tell(Event("close", 0, session=session))

    def unfinished(self) -> list[str]:
        return []

    def not_returned(self) -> None:
        pass

    def stop(self) -> None:
        pass


def exits() -> Hostile:
    return Hostile("exits", lambda: os._exit(EXIT_CODE))


def crashes() -> Hostile:
    return Hostile("crashes", lambda: ctypes.string_at(0))


def hangs() -> Hostile:
    return Hostile("hangs", hang_in_c)


def sleeps() -> Hostile:
    return Hostile("sleeps", lambda: [time.sleep(0.01) for _ in repeat(0)])


def raises() -> Hostile:
    return Hostile("raises", lambda: {}["no such page"])


def survives() -> Hostile:
    return Hostile("survives", lambda: None)
