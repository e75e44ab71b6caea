"""Data-parallel ranks of the reference: one trace of each, which conforms by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import require_exit
from trace_events import events_of

from kvproof.conformance.adapters.reference import record_scenario, record_workload
from kvproof.conformance.adapters.workload import WorkloadRequest
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.conformance.traces import file_names
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.impl.scenarios import SCENARIOS

STRICT = {"forward": "none", "check_every_step": True, "census_every_step": True}


def sessions_of(path: Path) -> set[str]:
    return {event.session for event in events_of(path) if event.session is not None}


@pytest.mark.parametrize("pools", ["host", "device"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_trace_of_each_rank_conforms(name: str, pools: str, tmp_path: Path) -> None:
    result = record_scenario(name, tmp_path / "t.jsonl", settings={**STRICT, "ranks": 2, "pools": pools})
    assert [path.name for path in result.paths] == ["t.dp0.jsonl", "t.dp1.jsonl"]
    assert result.path == result.paths[0]
    assert sum(len(events_of(path)) for path in result.paths) == result.events
    for rank, path in enumerate(result.paths):
        reader = TraceReader(path)
        assert (reader.header.extra["rank"], reader.header.extra["settings"]["ranks"]) == (rank, 2)
        assert replay(path).verdict == CONFORMS


def test_sessions_are_spread_and_none_is_in_two_traces(tmp_path: Path) -> None:
    result = record_scenario("many-sessions", tmp_path / "t.jsonl", settings={**STRICT, "ranks": 2})
    assert [sessions_of(path) for path in result.paths] == [{"a", "c"}, {"b"}]


def test_a_workload_is_spread_over_ranks(tmp_path: Path) -> None:
    requests = [WorkloadRequest(float(n), f"s{n % 5}" if n % 4 else None, 9 + n, 3, "g") for n in range(30)]
    told: list[tuple[Any, ...]] = []
    result = record_workload(
        requests, tmp_path / "w-{rank}.jsonl", settings={"ranks": 3}, progress=lambda *seen: told.append(seen)
    )
    assert [path.name for path in result.paths] == ["w-dp0.jsonl", "w-dp1.jsonl", "w-dp2.jsonl"]
    assert [replay(path).verdict for path in result.paths] == [CONFORMS] * 3
    assert sum(len(events_of(path, "finish")) for path in result.paths) == 30 and told[-1][0] == result.events
    sessions = [sessions_of(path) for path in result.paths]
    assert all(sessions) and sum(map(len, sessions)) == len(set.union(*sessions)) == 5


def test_the_same_ranks_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (record_scenario("storm", tmp_path / f"{n}.jsonl", settings={**STRICT, "ranks": 2}) for n in "ab")
    for one, other in zip(first.paths, second.paths, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_fault_shows_in_the_trace_of_the_rank_that_it_hits(tmp_path: Path) -> None:
    settings = {"forward": "none", "ranks": 2}
    result = record_scenario("retract", tmp_path / "t.jsonl", page_size=4, faults=("F22862b",), settings=settings)
    verdicts = [replay(path).verdict for path in result.paths]
    assert VIOLATES in verdicts


def test_one_rank_is_a_trace_as_ever(tmp_path: Path) -> None:
    one = record_scenario("basic", tmp_path / "a.jsonl", settings={"ranks": 1})
    plain = record_scenario("basic", tmp_path / "b.jsonl")
    assert one.paths == (tmp_path / "a.jsonl",)
    assert one.path.read_bytes().splitlines()[1:-1] == plain.path.read_bytes().splitlines()[1:-1]
    assert "rank" not in TraceReader(one.path).header.extra


@pytest.mark.parametrize("ranks", [0, -1, True, "two", 1.5])
def test_ranks_that_cannot_be_are_refused(ranks: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^ranks .*: must be a whole number, 1 or more$"):
        record_scenario("basic", tmp_path / "t.jsonl", settings={"ranks": ranks})
    assert not list(tmp_path.iterdir())


def test_the_command_names_every_trace(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    result = require_exit(0, "record", "--scenario", "many-sessions", "--set", "ranks=2", "--out", out)
    for rank in range(2):
        assert f"check it: kvproof replay {tmp_path}/t.dp{rank}.jsonl" in result.output.replace("\n", " ")


def test_a_name_may_say_where_the_rank_stands() -> None:
    assert file_names.of_rank("out/t.jsonl.gz", "dp1") == Path("out/t.dp1.jsonl.gz")
    assert file_names.of_rank("out/{rank}/t.jsonl", "dp1") == Path("out/dp1/t.jsonl")
    assert file_names.of_rank("out/t.jsonl", None) == Path("out/t.jsonl")
    assert file_names.of_rank("{rank}.jsonl", None) == Path("0.jsonl")
