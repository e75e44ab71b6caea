"""Nothing of what users say is in a trace: no field could hold it, and other words of the same lengths leave the same bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kvproof.spec.trace import End, Event, Header

NAMES = {"record", "action", "session", "turn"}
"""The texts of an event: its kind, and what clients called their session and request. No list of names, no free field."""


def texts_of(schema: dict[str, Any], of: dict[str, Any]) -> set[str]:
    """The properties of a JSON schema that take a text, or anything."""
    found = set()
    for name, field in schema.get("properties", {}).items():
        kinds = [field, *field.get("anyOf", ()), field.get("items", {}), field.get("additionalProperties", {})]
        kinds += [kind.get("items", {}) for kind in field.get("anyOf", ())]
        kinds += [k for kind in kinds if isinstance(kind, dict) for k in kind.get("anyOf", ())]
        if any(isinstance(k, dict) and (k.get("type") == "string" or k.get("const") or k.get("enum")) for k in kinds):
            found.add(name)
        for kind in kinds:
            if isinstance(kind, dict) and "$ref" in kind:
                found |= texts_of(of["$defs"][kind["$ref"].rpartition("/")[2]], of)
    return found


def texts(model: type[BaseModel]) -> set[str]:
    schema = model.model_json_schema()
    return texts_of(schema, schema)


def test_an_event_has_no_field_for_words() -> None:
    assert texts(Event) == NAMES
    assert texts(End) == {"record", "reason", "sha256"}
    assert {"scenario", "gaps", "known_deviations"} < texts(Header)  # the test sees texts where there are some


@pytest.mark.parametrize("scenario", ["retract", "pressure"])
def test_other_words_of_the_same_lengths_leave_the_same_bytes(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from kvproof.conformance.adapters.reference import record_scenario
    from kvproof.impl.runner import VOCAB_SIZE
    from kvproof.impl.scheduler import Scheduler

    others = dict(enumerate(random.Random(1).sample(range(1, VOCAB_SIZE), VOCAB_SIZE - 1), start=1))
    seen: set[int] = set()
    record_scenario(scenario, tmp_path / "one.jsonl")
    for name in ("submit", "submit_turn"):
        original = getattr(Scheduler, name)

        def said_otherwise(self: Any, *given: Any, original: Any = original, **more: Any) -> Any:
            words = [[others.get(t, t) for t in one] if isinstance(one, list) else one for one in given]
            seen.update(t for one in words if isinstance(one, list) for t in one)
            return original(self, *words, **more)

        monkeypatch.setattr(Scheduler, name, said_otherwise)
    record_scenario(scenario, tmp_path / "other.jsonl")
    assert seen, "the words were changed"
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes()
