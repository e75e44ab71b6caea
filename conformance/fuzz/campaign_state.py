"""The state of a campaign in its folder, from which `kvproof fuzz --resume` continues: plain data, saved whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, TypeAdapter

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.campaign import Campaign, Found
from kvproof.conformance.fuzz.growth import Growth
from kvproof.conformance.fuzz.saved_play import Data
from kvproof.conformance.fuzz.schedule import Setting
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.kept_types import Count, Counts, Seconds, Text
from kvproof.conformance.traces.data_file import LARGE, WRONG_SHAPE, parsed, read_text, wrong_shape
from kvproof.conformance.whole_file import write_whole
from kvproof.spec import SPEC_VERSION

FORMAT = 2
STATE = "campaign.json"


@dataclass(frozen=True)
class Plan:
    """What a campaign is about: all that is chosen once and holds when it continues."""

    target: Text
    seed: Count = 0
    faults: tuple[Text, ...] = ()
    settings: dict[str, Setting] = field(default_factory=dict)
    profile: Text | None = None

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
    numbers: dict[Text, Count] = field(default_factory=dict)
    """Of each finding its folder."""
    growth: Growth = field(default_factory=Growth)
    died: Count = 0
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
            "which this kvproof continues; leave --resume out to begin anew"
        )
    try:
        return _STATE.validate_python({**data, "plan": data, "growth": {"samples": data["growth"]}})
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


@dataclass
class SavedJob:
    """What one job did: all of a campaign that its plan does not say."""

    job: Count
    rounds: Count
    schedules: Count
    refused: Count
    steps: Count
    events: Count
    elapsed: Seconds
    seconds: Seconds
    known: Annotated[set[Text], PlainSerializer(sorted)]
    coverage: Coverage
    seen_in: Counts
    found: list[Found]


_STATE, _JOB = TypeAdapter(State), TypeAdapter(SavedJob)


def campaign_as_data(campaign: Campaign) -> Data:
    """What one job did, as JSON."""
    did = {f.name: getattr(campaign, f.name) for f in fields(SavedJob)}
    data: Data = _JOB.dump_python(SavedJob(**{**did, "found": list(campaign.found.values())}), mode="json")
    return data


def campaign_from_data(data: Data, plan: Plan, target: Target) -> Campaign:
    """Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    did = _JOB.validate_python(data)
    campaign = plan.campaign(target, did.job)
    vars(campaign).update({**vars(did), "found": {found.trouble.signature: found for found in did.found}})
    return campaign


def _not_ours(path: Path, error: Any) -> UserError:
    return UserError(f"{path}: not as kvproof writes it ({wrong_shape(error)}); leave --resume out")
