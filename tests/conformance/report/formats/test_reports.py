"""JUnit, SARIF and NDJSON of a run: valid to validators that are not ours, and saying what the run said."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import jsonschema
import pytest
from command_line import PROGRAM, UNTIL_FOUND, refusal
from command_line import run as invoke
from golden import GOLDEN
from junitparser import JUnitXml
from lxml import etree
from many_traces import broken
from reports import Reports, reported
from repository import DOCS, VARIANTS
from run_traces import Records, edited
from sarif_pydantic import Sarif
from trace_events import copied

from kvproof.conformance.report.formats.run_events import RUN_EVENT, schema

HOSTILE = "a\"b<i>\x00\x1b[31m]]>&amp;\u2028 [x](http://e.vil) {0} '|`@all`"


@pytest.fixture(scope="module")
def violating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken(tmp_path_factory.mktemp("traces") / "violating.jsonl")


@pytest.fixture(scope="module")
def incomplete(violating: Path) -> Path:
    path = violating.with_name("incomplete.jsonl")
    return edited(violating, lambda records: records.__delitem__(slice(4, None)), path)


def valid(folder: Path, exit_code: int, *arguments: object) -> Reports:
    """A run that ended so, whose files all validators take."""
    run = reported(folder, *arguments)
    run.all_valid()
    assert run.exit_code == exit_code, run.output
    return run


def test_a_violation_is_a_failure_a_result_and_a_found_event(tmp_path: Path, violating: Path) -> None:
    run = valid(tmp_path, 1, "replay", violating)
    assert [said["event"] for said in run.events] == ["started", "found", "judged", "covered", "ended"]
    (found,) = run.of("found")
    assert (found["line"], found["action"], found["explained_by"]) == (9, "match_slot", ["F22862b"])
    assert found["differences"] == [{"name": "freed pages", "before": None, "expected": [], "seen": [1]}]
    (failure,) = run.cases[0].findall("failure")
    assert failure.get("type") == "I4"  # what the fault breaks in the first place
    assert (
        "fault: the tail free starts at prefix_len" in failure.text
        and "(F22862b, " in failure.text
        and f"again: kvproof replay {violating}" in failure.text
    )
    (result,) = run.results
    assert result["ruleId"] == run.run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "I4"
    place = result["locations"][0]
    assert place["physicalLocation"]["region"] == {"startLine": 9}
    assert place["physicalLocation"]["artifactLocation"] == {"uri": violating.as_uri()}
    assert place["logicalLocations"] == [{"name": "event 7: match_slot", "kind": "element"}]


def test_what_a_finding_comes_from_is_said_in_every_format(tmp_path: Path) -> None:
    """A decode step was left out of a trace: its result is the finding."""

    def without_a_decode(records: Records) -> None:
        del records[next(n for n, record in enumerate(records) if record.get("action") == "decode")]
        for seq, record in enumerate(records[1:-1]):
            record["seq"] = seq
        records[-1]["events"] -= 1

    path = edited(copied(GOLDEN / "sglang-0.5.11-cpu" / "basic.jsonl.gz", tmp_path / "t.jsonl"), without_a_decode)
    run = valid(tmp_path, 1, "replay", path)
    (found,) = run.of("found")
    assert "decode" in found["cause"]
    (failure,) = run.cases[0].findall("failure")
    (result,) = run.results
    assert f"cause: {found['cause']}" in failure.text
    assert f"cause: {found['cause']}" in result["message"]["text"]
    explained = invoke("explain", path)
    assert " ".join(found["cause"].split()) in " ".join(explained.stdout.split())


def test_the_same_run_says_the_same(tmp_path: Path, violating: Path) -> None:
    first, second = (reported(tmp_path, "replay", violating).ndjson.read_bytes() for _ in range(2))
    assert first == second


def test_what_has_no_verdict_is_an_error_and_no_successful_run(tmp_path: Path, incomplete: Path) -> None:
    run = valid(tmp_path, 3, "replay", incomplete)
    assert [case.find("error").get("type") for case in run.cases] == ["incomplete"]
    (invocation,) = run.run["invocations"]
    assert not invocation["executionSuccessful"] and invocation["exitCode"] == 3
    assert "no terminal record" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert run.results == []


def test_a_trace_that_cannot_be_read_stands_beside_the_others(tmp_path: Path, violating: Path) -> None:
    (broken := tmp_path / "broken.jsonl").write_text("no trace\n")
    run = valid(tmp_path, 1, "replay", violating, broken)
    assert [len(case.findall("failure") + case.findall("error")) for case in run.cases] == [1, 1]
    assert run.of("could not")[0]["what"] == str(broken)


def test_a_run_that_ends_by_a_mistake_says_so_in_every_format(tmp_path: Path, incomplete: Path) -> None:
    run = valid(tmp_path, 2, "replay", incomplete, "--require-coverage", "actions=close")
    assert run.of("ended")[0]["exit_code"] == 2
    assert "not covered" in run.of("could not")[0]["why"]
    assert not run.run["invocations"][0]["executionSuccessful"]


def test_each_cell_of_a_proof_is_a_case(tmp_path: Path) -> None:
    run = valid(tmp_path, 0, "prove", "-q")
    assert run.results == []
    assert run.run["invocations"][0]["executionSuccessful"]
    cells = [case for case in run.cases if case.get("classname").startswith("kvproof.proof.ledger.")]
    assert {case.get("name") for case in cells} >= {"I1", "I22", "X1"}
    assert len(run.of("cell")) == 722
    assert not etree.parse(str(run.junit)).findall(".//failure")


def test_what_a_fault_breaks_stands_at_its_rule(tmp_path: Path) -> None:
    run = valid(tmp_path, 1, "prove", "--fault", "F22862b", "-q")
    assert {"I1", "I4", "I6", "helper"} <= {result["ruleId"] for result in run.results}
    (counterexample,) = run.of("counterexample")
    assert [step["action"] for step in counterexample["steps"]][-1] == "match_slot"
    place = run.results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("spec/faults/restore.py")


def test_what_a_variant_breaks_stands_at_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(VARIANTS)
    name = "sglang_22862_old_design.py"
    run = valid(tmp_path, 1, "prove", "--variant", name, "-q")
    lines = {n for n, text in enumerate(Path(name).read_text().splitlines(), 1) if text.startswith("def ")}
    places = [result["locations"][0]["physicalLocation"] for result in run.results]
    assert {p["artifactLocation"]["uri"] for p in places} == {name}
    assert {p["region"]["startLine"] for p in places} == lines


def test_what_is_fuzzed_is_a_case_with_its_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch")  # the reference implementation is what is fuzzed
    folder = tmp_path / "fuzz"
    run = valid(tmp_path, 1, "fuzz", "--fault", "F22862b", *UNTIL_FOUND, "--out", folder)
    (trouble,) = run.of("trouble")
    assert trouble["faults"] == ["F22862b"]
    bad = json.loads(Path(trouble["path"]).read_text().splitlines()[trouble["line"] - 1])
    assert bad["seq"] == trouble["seq"] and bad["action"] == "match"
    assert trouble["again"] == f"kvproof fuzz --replay {folder / '1'}"
    assert trouble["again"] in run.results[0]["message"]["text"]
    assert run.results[0]["ruleId"] == "I4"
    assert [len(case.findall("failure")) for case in run.cases] == [1, 0]


def test_hostile_names_are_harmless_and_still_told_apart(tmp_path: Path, violating: Path) -> None:
    names, traces = [HOSTILE, f"{HOSTILE}2"], [tmp_path / f"tr'ace <{number}>.jsonl" for number in range(2)]
    for name, trace in zip(names, traces, strict=True):
        trace.write_text(violating.read_text().replace('"session-1"', json.dumps(name)))
    run = valid(tmp_path, 1, "replay", *traces)
    assert [found["ledger"] for found in run.of("found")] == [f"session {name}" for name in names]
    messages = [case.find("failure").get("message") for case in run.cases]
    assert len(set(messages)) == 2 and "\\x1b[31m" in messages[0]
    assert [case.get("name") for case in run.cases] == [str(path) for path in traces]
    texts = [result["message"]["text"] for result in run.results]
    assert len(set(texts)) == 2
    assert not any(link in text for text in texts for link in ("](", "\x1b", "\u2028"))
    assert "{{0}}" in texts[0]


def test_a_file_name_that_is_no_text_is_written_as_text(tmp_path: Path, violating: Path) -> None:
    path = tmp_path / "half\udc80.jsonl"
    path.write_bytes(violating.read_bytes())
    files = [part for name in ("junit", "sarif", "ndjson") for part in (f"--{name}", tmp_path / f"report.{name}")]
    command = [PROGRAM, "replay", path, *files]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "utf-8:surrogateescape"}, capture_output=True)
    run = Reports(done.returncode, "", *files[1::2])
    run.all_valid()
    assert run.exit_code == 1
    assert run.of("judged")[0]["path"].endswith("half\\udc80.jsonl")
    assert run.cases[0].get("name").endswith("half\\udc80.jsonl")


def test_what_a_producer_wrote_freely_is_in_no_report(tmp_path: Path, violating: Path) -> None:
    spoken = {"extra": {"prompt": "the secret word"}}
    path = edited(violating, lambda records: records[0].update(spoken), tmp_path / "talkative.jsonl")
    run = reported(tmp_path, "replay", path)
    for file in (run.junit, run.sarif, run.ndjson):
        assert "secret" not in file.read_text()


def test_no_file_that_cannot_be_written_is_found_out_after_the_work(tmp_path: Path, violating: Path) -> None:
    (there := tmp_path / "file").write_text("")
    for option in ("--junit", "--sarif", "--ndjson"):
        assert "cannot write" in refusal("replay", violating, option, there / "x")
    same = tmp_path / "same"
    assert "two formats" in refusal("replay", violating, "--junit", same, "--sarif", same)
    assert not same.exists()


def test_an_interrupted_run_is_no_pass(tmp_path: Path, violating: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.conformance.cli.commands.replay._judge_one", Mock(side_effect=KeyboardInterrupt))
    run = valid(tmp_path, 130, "replay", violating)
    assert run.of("ended")[0]["exit_code"] == 130
    assert [case.find("error").get("type") for case in run.cases] == ["interrupted"]


def test_readers_of_other_people_read_them(tmp_path: Path, violating: Path) -> None:
    run = reported(tmp_path, "replay", violating)
    parsed = JUnitXml.fromfile(str(run.junit))
    assert (parsed.tests, parsed.failures, parsed.errors) == (1, 1, 0)
    assert Sarif.model_validate_json(run.sarif.read_text()).runs[0].tool.driver.name == "kvproof"


@pytest.mark.parametrize(
    ("file", "right", "wrong", "error"),
    [
        ("junit", 'name="kvproof replay" ', "", etree.DocumentInvalid),
        ("sarif", '"level": "error"', '"level": "fatal"', jsonschema.ValidationError),
        ("ndjson", '"verdict":', '"verdikt":', jsonschema.ValidationError),
        ("ndjson", '"path":', '"pa\nth":', json.JSONDecodeError),
    ],
)
def test_every_validator_refuses_a_damaged_file(
    tmp_path: Path, violating: Path, file: str, right: str, wrong: str, error: type[Exception]
) -> None:
    run = valid(tmp_path, 1, "replay", violating)
    path: Path = getattr(run, file)
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    with pytest.raises(error):
        run.all_valid()


def test_the_schema_that_is_published_is_that_of_the_events() -> None:
    assert (DOCS / "run-events.schema.json").read_text(encoding="utf-8") == schema()
    assert len(RUN_EVENT.json_schema()["oneOf"]) == 16
