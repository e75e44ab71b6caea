"""Plays a scenario on a scheduler, and makes the settings that it is played with."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.observe import Observer
from kvproof.impl.scenarios import SCENARIOS, Scenario
from kvproof.impl.simulated_users import AfterStep, Front, SimulatedUsers, front_of, to_its_end

SETTINGS = tuple(
    field.name for field in dataclasses.fields(EngineConfig) if field.name not in ("page_size", "seed", "faults")
)
"""The settings that a user may change; page size, seed and faults have places of their own."""


def scenario_config(
    name: str,
    *,
    page_size: int = 4,
    seed: int = 0,
    faults: tuple[str, ...] = (),
    settings: Mapping[str, Any] | None = None,
) -> EngineConfig:
    """The configuration of a scenario at a page size; `settings` win over what the scenario asks for."""
    chosen = {**find_scenario(name).settings(page_size), **checked_settings(settings or {})}
    return EngineConfig(page_size=page_size, seed=seed, faults=faults, **chosen)


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"unknown setting {key!r}; valid: {', '.join(SETTINGS)}")
    return dict(settings)


def find_scenario(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise ConfigError(f"unknown scenario {name!r}; valid: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def play(name: str, config: EngineConfig, *observers: Observer, after_step: AfterStep | None = None) -> Front:
    """Play a scenario to its end: every session closed, every request over, and one last memory check.

    Of several observers each has a rank of its own. `after_step` is called with the scheduler after each of its steps.
    """
    front = front_of(config, observers)
    users = SimulatedUsers(front, random.Random(config.seed), after_step)
    with to_its_end(front):
        find_scenario(name).run(users)
        users.drain()
        front.check()
    return front
