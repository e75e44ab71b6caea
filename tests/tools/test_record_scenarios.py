"""The tool that records scenarios of a driven scheduler: which files it writes, and how it answers a mistake."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import record_scenarios

from kvproof.conformance.adapters.scenario_run import DrivenResult
from kvproof.conformance.cli.commands.options import Setting
from kvproof.conformance.errors import UserError


def record_scenario(name: str, out: Path, *, page_size: int, seed: int, settings: dict[str, Setting]) -> DrivenResult:
    if name == "broken":
        raise UserError("there is no such checkout")
    return DrivenResult((out,), events=page_size, reason=f"with {settings}", steps=seed)


ADAPTER = SimpleNamespace(scenarios_here=lambda: ["basic", "retract"], record_scenario=record_scenario)


@pytest.mark.parametrize(("target", "below"), [("sglang", "0.5.11"), ("sglang-jax", ".")])
def test_every_scenario_is_recorded_at_every_page_size(
    target: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_scenarios, "load", lambda target, module: ADAPTER)
    monkeypatch.setattr(record_scenarios, "installed_version", lambda: "0.5.11")

    def command(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["record_scenarios.py", target, str(tmp_path), *arguments])
        return record_scenarios.main()

    assert command("--page-size", "1", "4", "--seed", "7", "--set", "window=8", "--set", "overlap=true") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / below / name}-p{size}.jsonl: {size} events, 7 steps, with {{'window': 8, 'overlap': True}}"
        for size in (1, 4)
        for name in ("basic", "retract")
    ]
    assert command("broken") == 2
    assert capsys.readouterr().err == "error: there is no such checkout\n"
    assert command("--set", "window") == 2
    assert capsys.readouterr().err == "error: --set 'window': expected KEY=VALUE, for example --set rows=4\n"
