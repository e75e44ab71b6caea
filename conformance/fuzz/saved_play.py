"""What was played, as plain data and back: it comes from another process, and a campaign that continues needs it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from kvproof.conformance.fuzz.play import Played, Trouble
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.kept_types import Count, KeptEvent, Text
from kvproof.spec.trace import Header

Data = dict[str, Any]
_BARE = PlainSerializer(lambda model: model.model_dump(mode="json", exclude_defaults=True))


@dataclass(frozen=True)
class SavedPlay:
    """A play as it is saved, and what is heard of a target that was played somewhere else.

    `seen`: how many events, also where they were not kept.
    """

    schedule: Annotated[Schedule, _BARE]
    header: Annotated[Header, _BARE] | None
    events: list[KeptEvent]
    seen: Count
    steps: Count
    coverage: Coverage
    states: frozenset[Text]
    trouble: Trouble | None

    @property
    def played(self) -> Played:
        return Played(self.schedule, self.header, self, self.steps, self.trouble)


_SAVED = TypeAdapter(SavedPlay)


def played_as_data(played: Played) -> Data:
    """JSON. The events of what went well are left out: nobody asks for them."""
    p, told = played, played.events if played.trouble is not None else []
    saved = SavedPlay(p.schedule, p.header, told, p.seen, p.steps, p.coverage, p.states, p.trouble)
    data: Data = _SAVED.dump_python(saved, mode="json")
    return data


def played_from_data(data: Data) -> Played:
    """Raises what a wrong shape raises: KeyError, TypeError, ValueError."""
    return _SAVED.validate_python(data).played


def _found_from_data(data: Data) -> Played:
    played = played_from_data(data)
    if played.trouble is None:
        raise ValueError("a finding without trouble")
    return played


FoundPlay = Annotated[Played, PlainValidator(_found_from_data), PlainSerializer(played_as_data)]
"""The play that shows a finding."""
