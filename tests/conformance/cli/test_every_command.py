"""What holds for all commands: one shape of `--json`, exit code 2 for what could not run, and no folder made by a typo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import require_exit
from repository import ROOT

from kvproof.conformance.cli.command_table import COMMANDS

TRACES = ROOT / "conformance" / "gate" / "golden"
GOOD, BAD = TRACES / "sglang-0.5.11-basic.jsonl.gz", TRACES / "reference-retract-F22862b.jsonl.gz"

ASKED: dict[str, tuple[int, str | None, str]] = {
    "prove": (1, "broken", "prove --fault F22862b --quiet"),
    "gate": (2, "could not run", "gate --skip proof --skip kills --skip golden --skip fuzz"),
    "record": (0, None, "record --scenario basic --out recorded.jsonl"),
    "replay": (1, "violates", f"replay {BAD} {GOOD}"),
    "drive": (1, "otherwise", f"drive {BAD}"),
    "explain": (1, "violates", f"explain {BAD}"),
    "info": (0, None, f"info {BAD}"),
    "convert": (0, None, f"convert {BAD} copy.jsonl"),
    "slice": (0, None, f"slice {BAD} --to 1 --out part.jsonl"),
    "fuzz": (0, "nothing found", "fuzz --seconds 0.5 --checker interpreted"),
    "shrink": (0, None, f"shrink {BAD} --out small.jsonl --seconds 1"),
    "watch": (2, "could not run", f"watch {GOOD} --once"),
    "sglang-env": (2, "could not run", "sglang-env"),
    "list": (0, None, "list faults"),
}
"""Of each command: its exit code, its verdict, and what was asked."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder that a command is run in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_every_command_is_asked() -> None:
    assert set(ASKED) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_has_one_shape_and_stdout_holds_nothing_else(command: str, here: Path) -> None:
    if command in ("record", "drive", "fuzz"):
        pytest.importorskip("torch")
    code, verdict, line = ASKED[command]
    result = require_exit(code, *line.split(), "--json", "-")
    told = json.loads(result.stdout)
    assert list(told)[:3] == ["command", "exit_code", "verdict"]
    assert (told["command"], told["exit_code"], told["verdict"]) == (command, code, verdict)
    assert len(told) > 3, "what was found out, or the error"
    if code == 2:
        assert told["error"] in result.stderr
