"""A record of a trace and its JSON line: how it is written, what is wrong with one that is not valid, how large it may be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from kvproof.conformance.errors import unknown_message
from kvproof.spec.trace import Config, End, Event, EventName, Header, Observed, Producer, Terms

LONGEST_RECORD = 2**25
"""Bytes of a record as JSON: it is read as a whole, so this bounds what a file asks for. A list of three million pages fits."""
LARGEST_POOL = 2**26
"""Pages of a pool, and rows: far above what a device holds. Tables of that size are made from the header alone."""
LARGEST_LENGTH = 2**40
"""Tokens of any length that a header states: what is computed from two of them stays within 64 bits."""


def line_of(record: Header | Event | End) -> bytes:
    """The record as its line says it, without the newline: compact JSON in schema order, params sorted by name."""
    if isinstance(record, Event):
        return event_line(record.seq, fields_of(record))
    # exclude_none, not exclude_defaults: the header always states its format and its record kind.
    return encoded(record.model_dump(mode="json", exclude_none=True))


def event_line(seq: int, fields: Mapping[str, Any]) -> bytes:
    """The line of an event of these fields, without the newline. The fields are not validated.

    What is at its default is left out: absent means "not observed".
    """
    line: dict[str, Any] = {"record": "event", "seq": seq}
    for name in _EVENT_FIELDS:
        value = fields.get(name)
        if name == "after" and value:
            value = {key: value[key] for key in _OBSERVED_FIELDS if value.get(key) is not None}
        if value is None or (not value and name in _ABSENT_IF_EMPTY):
            continue
        line[name] = dict(sorted(value.items())) if name == "params" else value
    return encoded(line)


def named_twice(line: bytes) -> str | None:
    """A name that an object of the line has twice: readers would differ in which value they take. Raises ValueError if it is no
    JSON."""
    twice: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = Counter(name for name, _ in pairs)
        twice.extend(name for name, times in names.items() if times > 1)

    json.loads(line, object_pairs_hook=look)
    return twice[0] if twice else None


def fields_of(event: Event) -> dict[str, Any]:
    """What was observed at an event, as the plain values of its line."""
    fields = {name: value for name, value in vars(event).items() if value is not None}
    for group in ("after", "terms", "window_terms"):
        if group in fields:
            fields[group] = {name: value for name, value in vars(fields[group]).items() if value is not None}
    return fields


def encoded(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode()


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_EVENT_FIELDS = tuple(name for name in Event.model_fields if name not in ("record", "seq"))
_OBSERVED_FIELDS = tuple(Observed.model_fields)
_ABSENT_IF_EMPTY = frozenset(
    name for name, field in Event.model_fields.items() if not field.is_required() and field.default is not None
)


# Where a field error can sit, and which fields are valid there. Keys are pydantic's locations without the last part.
_FIELDS_AT: dict[tuple[int | str, ...], type[BaseModel]] = {
    ("header",): Header,
    ("header", "producer"): Producer,
    ("header", "config"): Config,
    ("event",): Event,
    ("event", "after"): Observed,
    ("event", "terms"): Terms,
    ("end",): End,
}


def explained(error: ErrorDetails) -> str:
    """One sentence for pydantic's first complaint: which field, what was found, what is valid."""
    place, found = error["loc"], error.get("input")
    where = _name_of(place[1:])
    match error["type"]:
        case "json_invalid":
            return f"not JSON: {error['ctx']['error']}"
        case "union_tag_invalid":
            return unknown_message("record", _tag_of(found), ("header", "event", "end"))
        case "union_tag_not_found" | "model_attributes_type" | "model_type" | "dict_type" if len(place) <= 1:
            return 'not a record: each line is an object with "record": header, event or end'
        case "literal_error" if place == ("event", "action"):
            return unknown_message("action", found, get_args(EventName))
        case "extra_forbidden":
            model = _FIELDS_AT[place[:-1]]
            return unknown_message(f"field of {_name_of(place[:-1])}", place[-1], model.model_fields)
        case "missing":
            return f"field {where!r} is missing"
        case _:
            return f"field {where!r}: {error['msg']}, found {found!r}"


def out_of_range(config: Config) -> str | None:
    """The first number of a configuration that no server has, as a sentence."""
    for name, value in config:
        most = LARGEST_POOL if name in ("pool_pages", "window_pages", "rows") else LARGEST_LENGTH
        if type(value) is int and value > most:
            return f"field 'config.{name}': {value} is out of range, the largest is {most}"
    return None


def _name_of(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))


def _tag_of(found: object) -> object:
    return found.get("record") if isinstance(found, dict) else found
