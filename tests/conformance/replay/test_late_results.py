"""Results of turns that no longer run, and tokens that no rule reads: by either checker."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from run_traces import Records, edited

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.replay import CONFORMS, Finding, replay

pytest.importorskip("torch")
pytest.importorskip("numba")
from kvproof.conformance.adapters.reference import record_scenario


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Right traces with overlap."""
    folder = tmp_path_factory.mktemp("recorded")
    names = ("in-flight", "chunks-in-flight", "rounds")
    settings = {"forward": "none"}
    return {name: record_scenario(name, folder / f"{name}.jsonl", settings=settings).path for name in names}


def found(path: Path) -> Finding | None:
    first = replay(path, checker=Chosen("interpreted")).first
    assert replay(path, checker=Chosen("compiled")).first == first
    return first


def late(records: Records) -> int:
    """The place of the first result of a turn that is over."""
    over: set[str] = set()
    for place, record in enumerate(records):
        if record.get("action") in ("finish", "abort"):
            over.add(record["turn"])
        elif record.get("action") == "result" and record["turn"] in over:
            return place
    raise LookupError("no result comes late")


def repeated(records: Records) -> None:
    place = late(records)
    records.insert(place, copy.deepcopy(records[place]))
    for seq, record in enumerate(records[1:-1]):
        record["seq"] = seq
    records[-1]["events"] += 1


def late_tokens(count: int) -> Callable[[Records], object]:
    return lambda records: records[late(records)]["params"].update(tokens=count)


def of_a_chunk(count: int) -> Callable[[Records], object]:
    def change(records: Records) -> None:
        next(r for r in records if r.get("params", {}).get("tokens") == 0)["params"]["tokens"] = count

    return change


def of_an_unknown_turn(records: Records) -> None:
    records[late(records)]["turn"] = "of nobody"


def test_right_results_conform(recorded: dict[str, Path]) -> None:
    for path in recorded.values():
        assert replay(path, checker=Chosen("compiled")).verdict == replay(path).verdict == CONFORMS


@pytest.mark.parametrize(
    ("name", "change", "invariants"),
    [
        ("in-flight", repeated, {"I17"}),
        ("in-flight", late_tokens(100), {"I17"}),
        ("in-flight", of_an_unknown_turn, set()),
        ("rounds", late_tokens(9), {"I17"}),
        ("chunks-in-flight", of_a_chunk(1), {"I22"}),
    ],
    ids=["repeated", "too many tokens", "unknown turn", "more than drafted", "tokens of a chunk"],
)
def test_a_result_of_no_step_or_with_tokens_of_nobody_is_found(
    name: str, change: Callable[[Records], object], invariants: set[str], recorded: dict[str, Path], tmp_path: Path
) -> None:
    finding = found(edited(recorded[name], change, tmp_path / "t.jsonl"))
    assert finding is not None and finding.event.action == "result"
    assert set(finding.invariants) == invariants


def test_a_late_result_of_all_drafts_is_right(recorded: dict[str, Path], tmp_path: Path) -> None:
    def change(records: Records) -> None:
        records[late(records)]["params"]["tokens"] = records[0]["config"]["drafts"] + 1

    assert found(edited(recorded["rounds"], change, tmp_path / "t.jsonl")) is None
