"""`--json`: what a command found out, in one shape, however the command ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from kvproof.conformance.errors import UserError
from kvproof.conformance.report.answer import STDOUT, answer_with, answering


@pytest.mark.parametrize(
    ("ends_with", "said"),
    [
        (None, {"exit_code": 0, "verdict": "conforms"}),
        (typer.Exit(1), {"exit_code": 1, "verdict": "conforms"}),
        (typer.Exit(2), {"exit_code": 2, "verdict": "could not run"}),
        (typer.Exit(77), {"exit_code": 77, "verdict": None}),
        (UserError("no trace"), {"exit_code": 2, "verdict": "could not run", "error": "no trace"}),
        (KeyError("x"), {"exit_code": 2, "verdict": "could not run", "error": "a bug in kvproof: KeyError"}),
        (KeyboardInterrupt(), {"exit_code": 130, "verdict": "interrupted"}),
    ],
    ids=str,
)
def test_an_answer_is_written_however_the_command_ends(
    tmp_path: Path, ends_with: BaseException | None, said: dict[str, Any]
) -> None:
    def command() -> None:
        with answering("replay", tmp_path / "r.json"):
            answer_with(verdict="conforms", events=3)
            if ends_with is not None:
                raise ends_with

    if ends_with is None:
        command()
    else:
        with pytest.raises(type(ends_with)):
            command()
    assert json.loads((tmp_path / "r.json").read_text()) == {"command": "replay", "events": 3, **said}


def test_stdout_holds_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with answering("list", STDOUT):
        print("for people")
    said = capsys.readouterr()
    assert json.loads(said.out) == {"command": "list", "exit_code": 0, "verdict": None}
    assert said.err == "for people\n"


def test_no_answer_is_of_the_command_before(tmp_path: Path) -> None:
    with answering("info", None):
        answer_with(events=3)
    with answering("info", tmp_path / "r.json"):
        pass
    assert "events" not in json.loads((tmp_path / "r.json").read_text())


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"), answering("info", tmp_path):
        pytest.fail("the command ran")
