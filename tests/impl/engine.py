"""A scheduler without a model as tests hold it: with its events, and a census after each step."""

from __future__ import annotations

from typing import Any

from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Event
from kvproof.impl.ranks import Ranks
from kvproof.impl.scheduler import Scheduler


class Recorded:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, action: str, **fields: Any) -> list[Event]:
        return [
            event
            for event in self.events
            if event.action == action and all(getattr(event, name) == value for name, value in fields.items())
        ]


def drain(scheduler: Scheduler | Ranks) -> None:
    while not scheduler.is_idle:
        scheduler.step()


class Engine:
    def __init__(self, **settings: Any) -> None:
        self.recorded = Recorded()
        config = EngineConfig(**{"forward": "none", "census_every_step": True, **settings})
        self.scheduler = Scheduler(config, self.recorded)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.step()

    def drain(self) -> None:
        drain(self.scheduler)

    def turn(self, rid: str, new: int, output: int, session: str = "s") -> bool:
        return self.scheduler.submit_turn(session, rid, list(range(1, new + 1)), output)

    def actions(self, rid: str) -> list[str]:
        return [event.action for event in self.recorded.events if event.turn == rid]

    def last(self, action: str, rid: str) -> Any:
        return self.recorded.of(action, turn=rid)[-1]


def engine_with_a_session(**settings: Any) -> Engine:
    """Session s is open."""
    engine = Engine(**settings)
    engine.scheduler.open_session("s")
    return engine


def engine_with_a_turn(output: int, *, new: int = 10, steps: int | None = None, **settings: Any) -> Engine:
    """Turn 1 of session s, after so many steps; without a number it is over."""
    engine = engine_with_a_session(**settings)
    engine.turn("1", new, output)
    if steps is None:
        engine.drain()
    else:
        engine.step(steps)
    return engine
