"""What holds for all commands: one shape of `--json`, exit code 2 for what could not run, and no folder made by a typo."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_line import require_exit, run
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


WRONG = [
    "prove --fault F22862b --out no/such/parent/t.jsonl",
    "prove --fault F22862b --out out/t.txt",
    "prove --fault F22862b --itf no/such/parent/t.itf.json",
    "prove --fault F22862b --cache no/such/parent",
    "prove --fault F22862 --out out/t.jsonl",
    "prove --profile sglang-0.5 --out out/t.jsonl",
    "prove --variant my.py --out out/t.jsonl",
    "prove --falt F22862b --out out/t.jsonl",
    "prove --certify --certificate no/such/parent/c",
    "prove --code nowhere --schedules out/s --html out/page.html",
    "prove --action retrct --ndjson out/e.ndjson",
    "gate --markdown no/such/parent/gate.md",
    "gate --skip proof --skip kills --skip golden --fuzz-seconds 1 --out no/such/parent/gate",
    "gate --skip prof --out out/gate",
    "gate --profile sglang-0.5 --out out/gate",
    "gate --golden nowhere --out out/gate",
    "gate --skip proof --skip kills --skip golden --target nowhere:factory --out out/gate",
    "gate --cache no/such/parent",
    "record --scenario basic --out no/such/parent/t.jsonl",
    "record --scenario basic --out out/t.txt",
    "record --scenario bsic --out out/t.jsonl",
    "record --workload nowhere.jsonl --out out/t.jsonl",
    "record --target referenc --scenario basic --out out/t.jsonl",
    "record --target sglang-jax --scenario basic --out out/t.jsonl",
    "record --scenario basic --set row=1 --out out/t.jsonl",
    "record --scenario basic --fault F22862 --out out/t.jsonl",
    "record --scenario basic --page-size many --out out/t.jsonl",
    "record --target sglang-server --out no/such/parent/t.jsonl -- true",
    "record --target sglang-server --out out/t.jsonl -- no-such-program",
    f"replay {BAD} --json no/such/parent/r.json",
    f"replay {BAD} --junit no/such/parent/r.xml",
    f"replay {BAD} --sarif no/such/parent/r.sarif",
    f"replay {BAD} --ndjson no/such/parent/r.ndjson",
    f"replay {BAD} --checkpoint no/such/parent/c",
    f"replay {BAD} --profile sglang-0.5 --checkpoint out/c",
    "replay nowhere.jsonl --checkpoint out/c",
    "replay nowhere/",
    f"drive {BAD} --out no/such/parent/t.jsonl",
    f"drive {BAD} --out out/t.txt",
    f"drive {BAD} --fault F22862 --out out/t.jsonl",
    f"drive {BAD} --target referenc --out out/t.jsonl",
    "drive nowhere.jsonl --out out/t.jsonl",
    f"explain {BAD} --html no/such/parent/e.html",
    f"explain {BAD} --profile sglang-0.5 --html out/e.html",
    "explain nowhere.jsonl --html out/e.html",
    "explain I99",
    "info nowhere.jsonl",
    f"convert {BAD} no/such/parent/t.jsonl",
    f"convert {BAD} out/t.txt",
    f"convert {BAD} no/such/parent/t.itf.json",
    f"convert {BAD} out/t.jsonl --to colunmar",
    "convert nowhere.jsonl out/t.jsonl",
    "convert nowhere.jsonl out/t.perfetto.json",
    f"slice {BAD} --out no/such/parent/t.jsonl",
    f"slice {BAD} --out out/t.txt",
    f"slice {BAD} --session nobody --out out/t.jsonl",
    f"slice {BAD} --from 999999 --out out/t.jsonl",
    "slice nowhere.jsonl --out out/t.jsonl",
    "fuzz --seconds 1 --out no/such/parent/fuzz",
    "fuzz --seconds 1 --target referenc --out out/fuzz",
    "fuzz --seconds 1 --target nowhere:factory --out out/fuzz",
    "fuzz --seconds 1 --fault F22862 --out out/fuzz",
    "fuzz --seconds 1 --set row=1 --out out/fuzz",
    "fuzz --seconds 1 --profile sglang-0.5 --out out/fuzz",
    "fuzz --seconds 1 --checker fast --out out/fuzz",
    "fuzz --resume --out out/fuzz",
    "fuzz --replay nowhere/1",
    f"shrink {BAD} --out no/such/parent/t.jsonl",
    f"shrink {BAD} --out out/t.txt",
    f"shrink {BAD} --profile sglang-0.5 --out out/t.jsonl",
    f"shrink {GOOD} --out out/t.jsonl",
    "shrink nowhere.jsonl --out out/t.jsonl",
    "watch nowhere.jsonl --once",
    "watch nowhere.jsonl --once --checker fast",
    "sglang-env --release 0.5.11",
    "list fauls",
    *(f"{command} --no-such-option" for command in COMMANDS),
    *(f"{command} --json no/such/parent/r.json {BAD}" for command in ("replay", "info", "explain", "drive")),
]
"""One thing is wrong with each."""


@pytest.mark.parametrize("line", WRONG)
def test_what_is_mistyped_could_not_run_and_leaves_nothing_behind(line: str, here: Path) -> None:
    result = run(*line.split())
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output and "a bug in kvproof" not in result.output
    assert result.output.strip()
    assert [*here.rglob("*")] == []


def test_every_command_is_mistyped() -> None:
    assert {line.split()[0] for line in WRONG} == set(COMMANDS)


@pytest.mark.parametrize(
    "line",
    [
        "record --scenario basic --out t.txt",
        "prove --fault F22862b --out t.txt",
        f"drive {BAD} --out t.txt",
        f"slice {BAD} --out t.txt",
        f"shrink {BAD} --out t.txt",
        f"convert {BAD} t.txt",
    ],
)
def test_an_ending_that_no_trace_has_is_answered_with_those_that_there_are(line: str, here: Path) -> None:
    said = run(*line.split()).stderr
    assert "t.txt" in said and ".jsonl, .jsonl.gz, .kvtrace" in said


def test_one_folder_may_be_missing(here: Path) -> None:
    require_exit(0, "convert", BAD, "out/t.jsonl", "--json", "told/r.json")
    assert (here / "out" / "t.jsonl").exists() and (here / "told" / "r.json").exists()


@pytest.mark.parametrize("command", ["replay", "info", "explain", "convert", "slice"])
def test_a_line_that_is_cut_off_is_named_with_what_to_do(command: str, here: Path) -> None:
    whole = gzip.decompress(GOOD.read_bytes()).splitlines(keepends=True)
    (here / "cut.jsonl").write_bytes(b"".join(whole[:9]) + whole[9][:20])
    more = {"convert": ["copy.jsonl"], "slice": ["--out", "part.jsonl"]}.get(command, [])
    result = require_exit(3, command, "cut.jsonl", *more)
    assert "cut.jsonl:10: the line is cut off" in result.stdout and "record or copy it again" in result.stdout
