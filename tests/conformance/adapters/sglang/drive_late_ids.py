"""Records scenarios as on a GPU, where page ids come after the events that name them; runs in SGLang's environment, on a CPU.

No id is there before somebody waits for it, which is as late as it can come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import drive_parted

from kvproof.conformance.adapters import row_pages
from kvproof.conformance.adapters.live import page_ids
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.sglang.record import record_scenario, scenarios_here


class CopiesOfHost:
    """In the place of the device's copies. An event of it comes when it is awaited."""

    def begin(self, indices: Any) -> Any:
        return indices.clone()

    def events(self) -> list[Any]:
        return [SimpleNamespace(query=lambda: False, synchronize=lambda: None)]


class LatePageIds(PageIds):
    def __init__(self, page_size: int, *, device_is_host: bool) -> None:
        super().__init__(page_size, device_is_host=False)


def same_traces(names: Sequence[str], page_size: int) -> dict[str, int]:
    """Events of each of these scenarios that the release has; its trace with late ids is the same, to the byte."""
    with tempfile.TemporaryDirectory() as folder:
        early, late = Path(folder, "early.jsonl"), Path(folder, "late.jsonl")
        events = {}
        for name in [name for name in names if name in scenarios_here()]:
            events[name] = record_scenario(name, early, page_size=page_size).events
            with as_on_a_device():
                record_scenario(name, late, page_size=page_size)
            for expected, seen in zip_longest(early.read_text().splitlines(), late.read_text().splitlines()):
                assert seen == expected, f"{name}:\n{expected}\n{seen}"
    return events


def parted(folder: str) -> list[dict[str, Any]]:
    """What `drive_parted` finds, captured as on a server."""
    with as_on_a_device():
        return drive_parted.runs(folder)


@contextmanager
def as_on_a_device() -> Iterator[None]:
    with (
        mock.patch.object(page_ids, "DeviceCopies", CopiesOfHost),
        mock.patch.object(row_pages, "PageIds", LatePageIds),
    ):
        yield
