"""What was played, as plain data and back: it comes from another process, and a campaign that goes on needs it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvproof.conformance.fuzz.play import Played, Trouble
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.serialization import (
    coverage_as_data,
    coverage_from_data,
    finding_as_data,
    finding_from_data,
)
from kvproof.conformance.traces.data_file import count, text
from kvproof.spec.trace import Event, Header

Data = dict[str, Any]


@dataclass(frozen=True)
class HeardElsewhere:
    """What was heard of a target somewhere else. `seen`: how many events, also where they were not kept."""

    events: list[Event]
    seen: int
    coverage: Coverage
    states: frozenset[str]


def played_as_data(played: Played) -> Data:
    """JSON. The events of what went well are left out: nobody asks for them."""
    told = played.events if played.trouble is not None else []
    return {
        "schedule": played.schedule.model_dump(mode="json", exclude_defaults=True),
        "header": None if played.header is None else played.header.model_dump(mode="json", exclude_none=True),
        "events": [event.model_dump(mode="json", exclude_defaults=True) for event in told],
        "seen": played.seen,
        "steps": played.steps,
        "coverage": coverage_as_data(played.coverage),
        "states": sorted(played.states),
        "trouble": None if played.trouble is None else _trouble_as_data(played.trouble),
    }


def played_from_data(data: Data) -> Played:
    """Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    events = [Event.model_validate(event) for event in data["events"]]
    return Played(
        Schedule.model_validate(data["schedule"]),
        None if data["header"] is None else Header.model_validate(data["header"]),
        HeardElsewhere(
            events, count(data["seen"]), coverage_from_data(data["coverage"]), frozenset(map(text, data["states"]))
        ),
        count(data["steps"]),
        None if data["trouble"] is None else _trouble_from_data(data["trouble"]),
    )


def _trouble_as_data(trouble: Trouble) -> Data:
    finding = None if trouble.finding is None else finding_as_data(trouble.finding)
    return {**vars(trouble), "faults": list(trouble.faults), "after": list(trouble.after), "finding": finding}


def _trouble_from_data(data: Data) -> Trouble:
    finding = None if data["finding"] is None else finding_from_data(data["finding"])
    said = {name: text(data[name]) for name in ("kind", "signature", "sentence", "trace")}
    faults, after = tuple(map(text, data["faults"])), tuple(map(text, data.get("after", ())))
    return Trouble(**said, faults=faults, after=after, finding=finding)
