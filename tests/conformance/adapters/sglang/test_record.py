"""Events of a driven scheduler are written when their page ids are there: those of a device come late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.adapters.sglang import record


class LatePages:
    """Ids that are on their way until somebody waits for them."""

    def __init__(self) -> None:
        self.pages: list[int] = []

    def settle(self, *, wait: bool) -> None:
        if wait:
            self.pages.append(7)


class EvictsOnce:
    """In the place of the recorder: one eviction, as soon as it starts."""

    def __init__(self, release: Any, scheduler: Any, put: Any, step: Any) -> None:
        self.page_ids, self._put = LatePages(), put

    def start(self) -> None:
        self._put({"step": 1, "action": "evict", "free": self.page_ids.pages})

    def stop(self) -> None:
        pass

    def idle(self, passes: int) -> None:
        pass


def test_an_event_waits_for_its_page_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "Recorder", EvictsOnce)
    written: list[dict[str, Any]] = []
    headless: Any = SimpleNamespace(settings=SimpleNamespace(page_size=4), release=None, scheduler=None, steps=0)
    writer: Any = SimpleNamespace(event=lambda **fields: written.append({**fields, "free": [*fields["free"]]}))
    with record.recording(headless, writer):
        pass
    assert written == [{"step": 1, "action": "evict", "free": [7]}]
