"""The state of a campaign in its folder, from which `kvproof fuzz --resume` goes on: plain data, written whole or not at all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.campaign import Campaign, Found
from kvproof.conformance.fuzz.growth import Growth, Sample
from kvproof.conformance.fuzz.saved_play import Data, played_as_data, played_from_data
from kvproof.conformance.fuzz.schedule import Setting
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.replay.serialization import coverage_as_data, coverage_from_data
from kvproof.conformance.traces.data_file import (
    LARGE,
    WRONG_SHAPE,
    count,
    parsed,
    read_text,
    seconds,
    text,
    wrong_shape,
)
from kvproof.conformance.whole_file import write_whole
from kvproof.spec import SPEC_VERSION

FORMAT = 2
STATE = "campaign.json"


@dataclass(frozen=True)
class Plan:
    """What a campaign is about: all that is chosen once and holds when it goes on."""

    target: str
    seed: int = 0
    faults: tuple[str, ...] = ()
    settings: dict[str, Setting] = field(default_factory=dict)
    profile: str | None = None

    def for_target(self, target: Target) -> Plan:
        """With the target's own profile, unless another was chosen. Raises UserError for a setting that the target has not."""
        for name in self.settings:
            if name not in target.settings:
                raise unknown(f"setting of {self.target}", name, target.settings)
        return replace(self, profile=self.profile or target.profile)

    def campaign(self, target: Target, job: int) -> Campaign:
        """A job of it that did nothing so far."""
        return Campaign(target, self.faults, self.settings, self.seed, 0.0, job, profile=self.profile)


@dataclass
class State:
    plan: Plan
    jobs: list[Data] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """Of each finding its folder."""
    growth: Growth = field(default_factory=Growth)
    died: int = 0
    """Jobs that had to be begun again."""


def save_state(state: State, folder: Path) -> None:
    """Raises UserError if it cannot be written."""
    data = {
        "kvproof_campaign": FORMAT,
        "spec": SPEC_VERSION,
        **vars(state.plan),
        "jobs": state.jobs,
        "numbers": state.numbers,
        "growth": state.growth.samples,
        "died": state.died,
    }
    write_whole(folder / STATE, [json.dumps(data) + "\n"])


def load_state(folder: Path) -> State:
    """Raises UserError if there is none, or it cannot be gone on with."""
    path = folder / STATE
    try:
        data = parsed(read_text(path, LARGE))
    except OSError as error:
        raise UserError(f"no campaign to go on with: {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}; leave --resume out to begin anew") from error
    if not isinstance(data, dict) or data.get("kvproof_campaign") != FORMAT or data.get("spec") != SPEC_VERSION:
        raise UserError(
            f"{path}: not the state of a campaign of format {FORMAT} by specification {SPEC_VERSION}, "
            "which this kvproof goes on with; leave --resume out to begin anew"
        )
    try:
        faults, settings = tuple(map(text, data["faults"])), _SETTINGS.validate_python(data["settings"])
        profile = None if data.get("profile") is None else text(data["profile"])
        plan = Plan(text(data["target"]), count(data["seed"]), faults, settings, profile)
        growth = Growth([Sample(seconds(at), *map(count, counts)) for at, *counts in data["growth"]])
        numbers = {text(signature): count(number) for signature, number in data["numbers"].items()}
        return State(plan, list(data["jobs"]), numbers, growth, count(data["died"]))
    except WRONG_SHAPE as error:
        raise _not_ours(path, error) from error


def campaigns_of(state: State, target: Target, folder: Path) -> list[Campaign]:
    """The jobs as they were. Raises UserError if they are not as they are written here."""
    try:
        campaigns = [campaign_from_data(data, state.plan, target) for data in state.jobs]
        if [campaign.job for campaign in campaigns] != list(range(len(campaigns))):
            raise ValueError("the jobs are not numbered one by one")
        return campaigns
    except WRONG_SHAPE as error:
        raise _not_ours(folder / STATE, error) from error


def campaign_as_data(campaign: Campaign) -> Data:
    """What one job did, as JSON."""
    return {
        **{name: getattr(campaign, name) for name in _NUMBERS},
        "known": sorted(campaign.known),
        "coverage": coverage_as_data(campaign.coverage),
        "seen_in": dict(campaign.seen_in),
        "found": [_found_as_data(found) for found in campaign.found.values()],
    }


def campaign_from_data(data: Data, plan: Plan, target: Target) -> Campaign:
    """Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    campaign = plan.campaign(target, count(data["job"]))
    for name, number in _NUMBERS.items():
        setattr(campaign, name, number(data[name]))
    campaign.known = set(map(text, data["known"]))
    campaign.coverage = coverage_from_data(data["coverage"])
    campaign.seen_in = Counter({name: count(times) for name, times in data["seen_in"].items()})
    for found in map(_found_from_data, data["found"]):
        campaign.found[found.trouble.signature] = found
    return campaign


_SETTINGS = TypeAdapter(dict[str, Setting])
_NUMBERS: dict[str, Callable[[Any], float]] = {
    **dict.fromkeys(("job", "rounds", "schedules", "refused", "steps", "events"), count),
    **dict.fromkeys(("elapsed", "seconds"), seconds),
}
_OF_FOUND: dict[str, Callable[[Any], Any]] = {
    "number": count,
    "times": count,
    "after_seconds": seconds,
    "after_schedules": count,
}


def _found_as_data(found: Found) -> Data:
    return {**{name: getattr(found, name) for name in _OF_FOUND}, "played": played_as_data(found.played)}


def _found_from_data(data: Data) -> Found:
    played = played_from_data(data["played"])
    if played.trouble is None:
        raise ValueError("a finding without trouble")
    return Found(
        trouble=played.trouble, played=played, **{name: number(data[name]) for name, number in _OF_FOUND.items()}
    )


def _not_ours(path: Path, error: Any) -> UserError:
    return UserError(f"{path}: not as kvproof writes it ({wrong_shape(error)}); leave --resume out")
