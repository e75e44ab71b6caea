"""What weakens a verdict is in the first lines of the report, and in every other form of it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import run
from golden import of_sglang_0523
from repository import GOLDEN
from run_traces import trace_of_steps

from kvproof.spec.gaps import ONE_RECORD

ALLOWED = "allows known deviations: S0511a"
GAP = f"not checked: {ONE_RECORD}"
OLD = "not checked: whether events were left out: the end record, of an older recorder, states no sha256"


@pytest.fixture
def weak() -> Path:
    """A kept trace of a release that has a known deviation and a gap, of a recorder whose end record states no sha256."""
    return of_sglang_0523("retract-p4")


def test_the_report_says_it_before_anything_else(weak: Path) -> None:
    lines = run("replay", weak, "--profile", "auto").stdout.splitlines()
    assert lines[0].startswith("CONFORMS")
    said = " ".join(" ".join(lines[1:8]).split())
    assert all(sentence in said for sentence in (ALLOWED, GAP, OLD))
    assert said.index(OLD) < said.index("292 events")


def test_it_is_said_of_each_of_several_traces(weak: Path) -> None:
    said = " ".join(run("replay", weak, GOLDEN / "sglang-0.5.11-cpu" / "basic.jsonl.gz").stdout.split())
    assert ALLOWED in said and f"{ALLOWED}, S0511b" in said and GAP in said


def test_a_quiet_run_says_it_in_its_one_line(weak: Path) -> None:
    (line,) = run("replay", "-q", weak).stdout.splitlines()
    assert line.startswith("conforms\t") and all(sentence in line for sentence in (ALLOWED, GAP, OLD))


def test_every_file_that_a_tool_reads_says_it(weak: Path, tmp_path: Path) -> None:
    files = {form: tmp_path / form for form in ("json", "junit", "sarif", "ndjson")}
    run("replay", "-q", weak, *(word for form, path in files.items() for word in (f"--{form}", path)))
    (report,) = json.loads(files["json"].read_text())["traces"]
    assert report["allowed_deviations"] == ["S0511a"] and ONE_RECORD in report["gaps"]
    case = ElementTree.parse(files["junit"]).find(".//testcase")
    assert case is not None and [*case] == case.findall("system-out"), "a note is no failure"
    assert {ALLOWED, GAP, OLD} == set((case.findtext("system-out") or "").splitlines())
    (sarif,) = json.loads(files["sarif"].read_text())["runs"]
    notes = sarif["invocations"][0]["toolExecutionNotifications"]
    assert {note["level"] for note in notes} == {"warning"}
    assert [note["message"]["text"] for note in notes] == [f"{weak}: {said}" for said in (ALLOWED, GAP, OLD)]
    judged = next(e for e in map(json.loads, files["ndjson"].read_text().splitlines()) if e["event"] == "judged")
    assert judged["allowed_deviations"] == ["S0511a"] and ONE_RECORD in judged["gaps"]


def test_of_a_trace_without_any_only_a_recorder_that_is_not_known_is_named(tmp_path: Path) -> None:
    shown = run("replay", trace_of_steps(tmp_path / "t.jsonl", 2, 8, ("open", {}), ("close", {}))).stdout
    assert shown.startswith("CONFORMS") and "allows" not in shown
    [line] = [line for line in shown.splitlines() if "not checked" in line]
    assert "what the recorder of 'model' tells is not known" in line
