"""The fields of an event that has a place in the columns of a trace: names, types and ranges, which msgspec checks.

Anything else is read as a record, by `spec.trace.Event`: it is an event that stands `verbatim`, or it is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    FLAG_PARAMS,
    FLAGS_AFTER,
    LARGEST_NUMBER,
    LARGEST_WIDE_NUMBER,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
    TERMS,
)
from kvproof.conformance.traces.records import named_twice
from kvproof.spec.trace import EventName

Number = Annotated[int, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
WideNumber = Annotated[int, Meta(ge=-LARGEST_WIDE_NUMBER, le=LARGEST_WIDE_NUMBER)]
Pages = list[Number]

GROUPS = {
    "params": (*FLAG_PARAMS, *NUMBER_PARAMS),
    "after": (*FLAGS_AFTER, *NUMBERS_AFTER),
    "terms": TERMS,
    "window_terms": TERMS,
}
"""Fields that have fields. What is absent in one is ABSENT, as in an array."""
Params = msgspec.defstruct(
    "Params",
    [*((name, bool, ABSENT) for name in FLAG_PARAMS), *((name, Number, ABSENT) for name in NUMBER_PARAMS)],
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
)
After = msgspec.defstruct(
    "After",
    [*((name, bool, ABSENT) for name in FLAGS_AFTER), *((name, Number, ABSENT) for name in NUMBERS_AFTER)],
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
)
SomeTerms = msgspec.defstruct("SomeTerms", [(name, Number) for name in TERMS], forbid_unknown_fields=True, gc=False)
NOTHING = {"params": Params(), "after": After()}
"""Groups without a value."""


class EventFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What was observed at an event. Defaults, which are not checked, stand for what is absent.

    The garbage collector need not look at it (`gc=False`): nothing in it can lead back to it.
    """

    seq: Annotated[int, Meta(ge=0, le=LARGEST_WIDE_NUMBER)] = -1
    action: EventName
    cause: WideNumber | None = None
    step: WideNumber | None = None
    session: str | None = None
    turn: str | None = None
    row: Number | None = None
    record: Literal["event"] | None = None
    params: Params = None  # type: ignore[valid-type]
    after: After = None  # type: ignore[valid-type]
    terms: SomeTerms | None = None  # type: ignore[valid-type]
    window_terms: SomeTerms | None = None  # type: ignore[valid-type]
    alloc: Pages = ()  # type: ignore[assignment]
    free: Pages = ()  # type: ignore[assignment]
    shared: Pages | None = None
    window_alloc: Pages = ()  # type: ignore[assignment]
    window_free: Pages = ()  # type: ignore[assignment]
    free_list: Pages | None = None
    window_free_list: Pages | None = None


PLAIN = EventFields.__struct_fields__[: EventFields.__struct_fields__.index("record")]
"""Fields that are a number or a name."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(EventFields).decode


def fields_of_line(line: bytes) -> EventFields | None:
    """The fields of a line; None: it is no event, or one that does not fit the columns."""
    try:
        fields = _decode(line)
        # Without spaces a line is as long as what was read from it, whatever the order; longer where a name stands twice.
        if len(_encode(fields)) + 1 != len(line) and named_twice(line) is not None:
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return fields if fields.record is not None and fields.seq >= 0 else None


def fitting(seq: int, fields: Mapping[str, Any]) -> EventFields | None:
    """The other fields of an event, if they fit the columns."""
    try:
        found = msgspec.convert(fields, EventFields)
        for name in (found.session, found.turn):
            if name is not None and not name.isascii():
                name.encode()
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
        return None
    found.seq = seq
    return found if seq <= LARGEST_WIDE_NUMBER else None
