"""The types of what is kept in files and sent between processes, as pydantic reads it. What a file may not hold is refused.

A field is typed by one of these where pydantic by itself would take more (`"1"` for a number), or could not tell what to write.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from kvproof.conformance.traces.data_file import count, seconds, text, whole_number
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.state import FIELDS, Ledger
from kvproof.spec.trace import Event

HEADER_LINE = 1
"""Of a trace; its events are on the lines behind."""
_FLAGS = frozenset(f.name for f in FIELDS if f.metadata["sort"] == "flag")


def ledger_from_data(data: Any) -> Ledger:
    """Raises what a wrong shape raises: TypeError, ValueError."""
    ledger = Ledger(**data)
    for name, value in vars(ledger).items():
        if type(value) is not (bool if name in _FLAGS else int):
            raise ValueError(f"{name} of a ledger is {value!r:.60}")
    return ledger


def _counts(data: Any) -> Counter[str]:
    return Counter({text(name): whole_number(number) for name, number in data.items()})


def _line(number: Any) -> int:
    if count(number) <= HEADER_LINE:
        raise ValueError(f"line {number} of a finding is no event's")
    return int(number)


WholeNumber = Annotated[int, PlainValidator(whole_number)]
Count = Annotated[int, PlainValidator(count)]
Seconds = Annotated[float, PlainValidator(seconds)]
Text = Annotated[str, PlainValidator(text)]
Counts = Annotated[Counter[str], PlainValidator(_counts), PlainSerializer(dict)]
Line = Annotated[int, PlainValidator(_line)]
"""Of an event in its trace."""
KeptLedger = Annotated[Ledger, PlainValidator(ledger_from_data), PlainSerializer(lambda ledger: dict(vars(ledger)))]
KeptFault = Annotated[Fault, PlainValidator(lambda name: FAULTS[name]), PlainSerializer(lambda fault: fault.id)]
"""By its id."""
KeptEvent = Annotated[Event, PlainSerializer(lambda event: event.model_dump(mode="json", exclude_defaults=True))]
