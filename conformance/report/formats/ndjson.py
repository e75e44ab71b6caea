"""NDJSON: the events of a run as they are, one JSON object a line."""

from __future__ import annotations

import json
from typing import Any

from kvproof.conformance.report.formats.run_events import RUN_EVENT


def line_of(event: Any) -> str:
    """One event with its line end. ASCII only, so that nothing in a name can end the line or hide in it."""
    return json.dumps(event.model_dump(), separators=(",", ":")) + "\n"


def schema() -> str:
    """The JSON Schema of one line."""
    return json.dumps(RUN_EVENT.json_schema(), indent=1, sort_keys=True) + "\n"
