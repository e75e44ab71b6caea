from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_events import all_in, events_of

from kvproof.conformance.adapters import reference
from kvproof.conformance.adapters.reference import record_scenario, record_workload
from kvproof.conformance.adapters.workload import WorkloadRequest
from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.json_lines import TraceReader


def test_a_scenario_becomes_a_complete_trace(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    result = record_scenario("retract", out, page_size=4, seed=3, settings={"rows": 5})
    events = events_of(out)
    assert (result.path, result.events, result.reason) == (out, len(events), "finished")
    header = TraceReader(out).header
    assert (header.producer.name, header.producer.target) == ("kvproof-reference", "reference")
    assert header.scenario == "retract"
    assert (header.config.page_size, header.config.rows) == (4, 5)
    assert (header.extra["seed"], header.extra["settings"]) == (3, {"rows": 5})


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        record_scenario("storm", path, seed=2)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_workload_becomes_a_complete_trace(tmp_path: Path) -> None:
    requests = [WorkloadRequest(float(n), f"s{n % 3}" if n % 4 else None, 9 + n, 3, "g") for n in range(20)]
    told: list[tuple[Any, ...]] = []
    result = record_workload(requests, tmp_path / "w.jsonl", progress=lambda *args: told.append(args))
    actions = [event.action for event in events_of(tmp_path / "w.jsonl")]
    assert result.reason == "finished" and actions.count("finish") == 20
    assert told[-1] == (result.events - 1, 20, 20) or told[-1][0] == result.events


def test_a_run_that_a_fault_breaks_ends_its_trace_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: object) -> None:
        raise IndexError("page 7")

    monkeypatch.setattr("kvproof.impl.scenario_player.play", break_off)
    out = tmp_path / "t.jsonl"
    assert record_scenario("basic", out, faults=("F22862b",)).reason == "crashed: IndexError: page 7"
    reader = TraceReader(out)
    assert list(reader) and reader.end is not None and reader.end.reason == "crashed: IndexError: page 7"
    with pytest.raises(IndexError):
        record_scenario("basic", out)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bsic", {}, "unknown scenario of reference 'bsic'; did you mean basic?"),
        ("basic", {"faults": ("F2286",)}, "unknown fault of reference 'F2286'"),
        ("basic", {"settings": {"row": 3}}, "unknown setting of reference 'row'"),
        ("basic", {"page_size": 0}, "page_size 0: must be 1 or more"),
        ("basic", {"settings": {"device": "nowhere"}}, "unknown device 'nowhere'; valid: cpu, cuda, cuda:N"),
        ("basic", {"settings": {"device": "cuda:99"}}, "device 'cuda:99' is not usable here"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(tmp_path: Path, name: str, options: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        record_scenario(name, tmp_path / "t.jsonl", **options)
    assert caught.value.message.startswith(message)


def test_without_torch_the_user_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"pip install 'kvproof\[reference\]'"):
        reference.record_scenario("basic", tmp_path / "t.jsonl")


def test_the_command_line_and_the_table_of_scenarios_do_not_import_torch() -> None:
    modules = "kvproof.conformance.cli.cli, kvproof.conformance.adapters.reference, kvproof.impl.scenarios"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_name_of_the_trace_decides_its_form(tmp_path: Path) -> None:
    """What is recorded is the same in columns as in lines, a run that crashed included."""
    pytest.importorskip("pyarrow")
    for name, options in (("retract", {}), ("basic", {"faults": ("F22862b",)})):
        lines, columns = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.kvtrace"
        first, second = record_scenario(name, lines, **options), record_scenario(name, columns, **options)
        assert (first.events, first.reason) == (second.events, second.reason)
        assert all_in(lines) == all_in(columns)
        assert columns.read_bytes().startswith(b"\x89KVTRACE")
