"""Settings of a target, as they are given on the command line: `--set KEY=VALUE`."""

from __future__ import annotations

import json
from typing import Any

from kvproof.conformance.errors import UserError

Setting = int | float | bool | str | None


def parse_settings(pairs: list[str]) -> dict[str, Setting]:
    """`rows=4` -> {"rows": 4}. Values are read as JSON where they are, else as text; a later one wins."""
    settings: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--set {pair!r}: expected KEY=VALUE, for example --set rows=4")
        settings[key] = _parse_value(value)
    return settings


def _parse_value(text: str) -> Setting:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, int | float | bool | str) else text
