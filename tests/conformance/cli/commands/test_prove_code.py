"""`kvproof prove --code` as a user meets it: verdicts, files for people and tools, and which options go with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import refusal, require_exit
from small_sglang import write_sglang


def test_the_functions_of_a_folder_are_proved_and_what_that_rests_on_is_said(tmp_path: Path) -> None:
    result = require_exit(0, "prove", "--code", write_sglang(tmp_path), "--profile", "auto")
    assert "StreamingSession.match_prefix" in result.stdout and "streaming_session.py:" in result.stdout
    assert result.stdout.splitlines()[-1] == "PROVED"
    assert "assumed: " in result.stderr


def test_a_function_that_differs_is_told_to_people_and_to_tools(tmp_path: Path) -> None:
    folder = write_sglang(tmp_path, "(target + page_size - 1) // page_size", "target // page_size")
    data, cases, results = (tmp_path / f"out.{end}" for end in ("json", "xml", "sarif"))
    result = require_exit(1, "prove", "--code", folder, "--json", data, "--junit", cases, "--sarif", results)
    assert "not so: the same pages are left behind the row" in result.stdout
    assert result.stdout.splitlines()[-1] == "DIFFERS FROM THE RULES"
    assert "differs from the rule finish" in cases.read_text() and "after open(); create(" in cases.read_text()
    assert "; finish(" in results.read_text()
    places = [
        found["locations"][0]["physicalLocation"] for found in json.loads(results.read_text())["runs"][0]["results"]
    ]
    assert places and all(place["artifactLocation"]["uri"].endswith("streaming_session.py") for place in places)
    [told] = json.loads(data.read_text())["targets"]
    assert {function["verdict"] for function in told["functions"]} == {"proved", "differs", "absent"}
    shown = [difference for function in told["functions"] for difference in function["differences"]]
    assert [call["action"] for call in shown[0]["schedule"]][:2] == ["open", "create"]


def test_a_difference_is_saved_as_a_page_and_as_schedules_with_the_command_that_plays_them(tmp_path: Path) -> None:
    folder = write_sglang(tmp_path / "code", "        if is_insert:", "        if True:")
    page, schedules = tmp_path / "code.html", tmp_path / "schedules"
    result = require_exit(1, "prove", "--code", folder, "--html", page, "--schedules", schedules)
    assert f"kvproof fuzz --replay {schedules}/retract-1.json" in result.stdout.replace("\n", "")
    assert json.loads((schedules / "retract-1.json").read_text())["target"] == "sglang"
    assert "newly" not in page.read_text() and "retract()" in page.read_text()

    right = require_exit(0, "prove", "--code", write_sglang(tmp_path / "right"), "--schedules", tmp_path / "none")
    assert "no schedule is saved" in right.stderr and not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize("option", ["--html", "--schedules"])
def test_a_page_and_schedules_are_of_code_alone(option: str, tmp_path: Path) -> None:
    assert "are for --code" in refusal("prove", option, tmp_path / "place")


def test_a_fault_that_the_release_is_known_for_is_as_loud_as_the_verdict(tmp_path: Path) -> None:
    folder = write_sglang(tmp_path, "        if is_insert:", "        if True:")
    result = require_exit(0, "prove", "--code", folder, "--profile", "sglang-0.5.17")
    assert result.stdout.splitlines()[-1] == "PROVED but for the known faults of the release: S0511a"


def test_a_tree_without_a_session_cache_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    assert "NOTHING CHECKED" in require_exit(2, "prove", "--code", tmp_path).stdout


@pytest.mark.parametrize("option", [("--fault", "F22862b"), ("--certify",), ("--out", "t.jsonl")])
def test_code_and_rules_are_not_proved_at_once(option: tuple[str, ...], tmp_path: Path) -> None:
    assert f"leave out {option[0]}" in refusal("prove", "--code", tmp_path, *option)
