"""From 0.5.20 on a prompt whose prefix has lost its window pages is inserted only up to where it parts, and where a request ends
the tree takes the window pages of its duplicates. Both are rules of those releases, and told in the trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang_process import LATER, called, often_and_in_full
from trace_events import read_records, write_records

from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay

INSERTED_WHOLE = ("0.5.11", "0.5.12", "0.5.14", "0.5.17")
PARTS, TAKES_OVER = "parts_and_goes_on", "ends_beside_one_that_lost_its_window"


@pytest.mark.parametrize("release", often_and_in_full(("0.5.11", LATER[-1])))
def test_what_a_release_does_by_a_rule_of_its_own_conforms(release: str, tmp_path: Path) -> None:
    found = called(release, "drive_parted:runs", tmp_path)
    assert [(run["verdict"], run["found"]) for run in found] == [(CONFORMS, [])] * 4
    is_whole = release in INSERTED_WHOLE
    assert [run["parts"] for run in found] == ([[]] * 4 if is_whole else [[1], [1], [], [1]])
    assert [run["taken over"] for run in found] == ([[]] * 4 if is_whole else [[], [], [[1]], [[1]]])
    assert {run["by the model"] for run in found[:3]} == {CONFORMS if is_whole else VIOLATES}


def without_shared(event: dict[str, Any]) -> None:
    """The window page of the duplicate would have had to go back."""
    if event.get("action") == "finish":
        event.pop("shared", None)


def of_another(event: dict[str, Any]) -> None:
    if event.get("action") == "finish" and "shared" in event:
        event["shared"] = [page + 7 for page in event["shared"]]


def longer_key(event: dict[str, Any]) -> None:
    """The tree would own a page more than it does."""
    if "key_len" in event.get("params", {}):
        event["params"]["key_len"] += 1


def protects_all(event: dict[str, Any]) -> None:
    if "key_len" in event.get("params", {}):
        event["after"]["cache_protected_len"] = event["after"]["prefix_len"]


@pytest.mark.sglang
@pytest.mark.parametrize(
    ("drive", "change"),
    [(TAKES_OVER, without_shared), (TAKES_OVER, of_another), (PARTS, longer_key), (PARTS, protects_all)],
)
def test_what_is_told_of_it_is_judged(
    drive: str, change: Callable[[dict[str, Any]], None], newest: Path, tmp_path: Path
) -> None:
    events = read_records(newest / f"{drive}.jsonl")
    for event in events:
        change(event)
    changed = write_records(tmp_path / "changed.jsonl", events)
    assert replay(newest / f"{drive}.jsonl", profile="auto").verdict == CONFORMS
    assert replay(changed, profile="auto").verdict == VIOLATES


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parted")
    called(LATER[-1], "drive_parted:runs", folder)
    return folder
