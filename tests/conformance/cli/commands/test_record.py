"""`kvproof record`: what it asks of an adapter, what it refuses, and what the reference implementation records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import refusal, require_exit, run
from repository import EXCERPT

from kvproof.conformance.adapters import scenarios
from kvproof.conformance.cli.commands import record as record_command


@dataclass
class Adapter:
    """Stands for any adapter module: remembers what it was asked for."""

    SCENARIOS: dict[str, Any] = field(default_factory=lambda: {"retract": SimpleNamespace(summary="pool pressure")})
    reason: str = "finished"
    asked: dict[str, Any] = field(default_factory=dict)

    def record_scenario(self, what: Any, out: Path, **options: Any) -> SimpleNamespace:
        self.asked = {"what": what, **options}
        options["progress"](3)
        return SimpleNamespace(paths=(out,), events=3, reason=self.reason)

    record_workload = record_scenario


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Adapter:
    adapter = Adapter()
    for module in (scenarios, record_command):
        monkeypatch.setattr(module, "load", lambda target, module: adapter)
    return adapter


def test_record_hands_everything_to_the_adapter_and_says_how_to_check_it(adapter: Adapter) -> None:
    result = run(
        *("record", "--out", "a b.jsonl", "--scenario", "retract", "--page-size", 4, "--seed", 7),
        *("--fault", "F22862b", "--set", "rows=4", "--set", "overlap=true", "--set", "mode=fifo"),
        *("--device", "cuda"),
    )
    assert result.exit_code == 0, result.output
    asked = adapter.asked
    assert (asked["what"], asked["page_size"], asked["seed"], asked["faults"]) == ("retract", 4, 7, ("F22862b",))
    assert asked["settings"] == {"rows": 4, "overlap": True, "mode": "fifo", "device": "cuda"}
    assert result.stdout.splitlines() == [
        "recorded a b.jsonl: 3 events, page size 4, scenario retract",
        "  with F22862b turned on",
        "check it: kvproof replay 'a b.jsonl'",
    ]


def test_what_a_release_recorded_is_checked_by_its_own_rules(adapter: Adapter) -> None:
    result = require_exit(0, "record", "--target", "sglang", "--out", "t.jsonl", "--scenario", "retract")
    assert "faults" not in adapter.asked, "no fault is turned on in a release"
    assert result.stdout.splitlines()[-1] == "check it: kvproof replay t.jsonl --profile auto"


def test_record_of_a_workload_says_that_it_was_scaled(adapter: Adapter) -> None:
    result = require_exit(0, "record", "-o", "t.jsonl", "--workload", EXCERPT, "--scale", 32, "--limit", 10)
    assert len(adapter.asked["what"]) == 10 and adapter.asked["what"][0].new_tokens == 64
    assert (
        "10 requests in 9 sessions of mooncake_conversation_excerpt.jsonl, token counts divided by 32" in result.stdout
    )


def test_record_says_when_the_run_ended_early(adapter: Adapter) -> None:
    adapter.reason = "the pool ran dry"
    assert "the run ended early: the pool ran dry" in run("record", "-o", "t.jsonl", "--scenario", "retract").stdout


def test_quiet_record_prints_nothing(adapter: Adapter) -> None:
    assert run("record", "-q", "-o", "t.jsonl", "--scenario", "retract").output == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--scenario", "retrct"], "unknown scenario of reference 'retrct'; did you mean retract?; valid: retract"),
        (["--scenario", "retract", "--fault", "F22862"], "unknown fault 'F22862'; did you mean F22862"),
        (["--scenario", "retract", "--page-size", "0"], "page size 0: a page holds 1 token or more"),
        (["--scenario", "retract", "--target", "vllm"], "unknown target 'vllm'; valid: reference, sglang"),
        (["--scenario", "retract", "--scale", "2"], "--scale and --limit are for a workload"),
        (["--scenario", "retract", "--set", "rows"], "--set 'rows': expected KEY=VALUE"),
        (["--scenario", "retract", "--workload", str(EXCERPT)], "give either --scenario NAME"),
        ([], "give either --scenario NAME"),
        (["--workload", str(EXCERPT), "--scale", "0"], "scale 0"),
        (["--workload", str(EXCERPT), "--target", "sglang"], "--workload is for the reference only"),
        (["--scenario", "retract", "--target", "sglang", "--fault", "F22862b"], "--fault is for the reference only"),
        (["--scenario", "retract", "--target", "sglang", "--device", "cuda"], "--device is for the reference"),
        (["--workload", __file__], f"{__file__}:1: kvproof reads Mooncake JSONL"),
    ],
)
def test_record_refuses_in_one_line(adapter: Adapter, arguments: list[str], expected: str) -> None:
    assert expected in refusal("record", "-o", "t.jsonl", *arguments)
    assert adapter.asked == {}


def test_a_recorded_production_workload_conforms(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "chat.jsonl.gz"
    require_exit(0, "record", "-o", out, "--workload", EXCERPT, "--scale", 32)
    require_exit(0, "replay", out)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("row=1", "unknown setting of reference 'row'; did you mean rows?; valid: "),
        ("rows=0", "rows 0: must be 1 or more"),
        ("pool_pages=10000000000", "pool_pages 10000000000 of page_size 16 take "),
        ("device=meta", "unknown device 'meta'; valid: cpu, cuda, cuda:N"),
    ],
)
def test_a_setting_that_the_reference_does_not_take_is_refused(tmp_path: Path, settings: str, expected: str) -> None:
    pytest.importorskip("torch")
    assert expected in refusal("record", "-o", tmp_path / "t.jsonl", "--scenario", "basic", "--set", settings)
