"""`kvproof gate`: what passes, and each way of not passing, seen."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import refusal, run
from many_traces import broken
from repository import VARIANTS

from kvproof.conformance.gate import golden_traces, kills
from kvproof.conformance.gate.golden_traces import SHIPPED, kept_in
from kvproof.conformance.gate.steps import Outcome, Plan, exit_code
from kvproof.conformance.gate.summary import markdown
from kvproof.conformance.printable import for_markdown

ALONE = {
    "proof": ("--skip", "kills", "--skip", "golden", "--skip", "fuzz"),
    "kills": ("--skip", "proof", "--skip", "golden", "--skip", "fuzz"),
    "golden": ("--skip", "proof", "--skip", "kills", "--skip", "fuzz"),
    "fuzz": ("--skip", "proof", "--skip", "kills", "--skip", "golden"),
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def golden_folder(tmp_path: Path) -> Path:
    """One trace, which violates."""
    (folder := tmp_path / "golden").mkdir()
    broken(folder / "trace.jsonl")
    return folder


@pytest.mark.slow
def test_the_whole_gate_passes_on_these_rules(tmp_path: Path) -> None:
    result = run("gate", "--fuzz-seconds", 5, "--markdown", tmp_path / "gate.md", "--budget", 600)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "gate.md").read_text()
    assert page.startswith("## kvproof gate: passed") and page.count("✅ passed") == 4
    assert "of 42 faults 42 refuted by the proof, 41 found by replay, 28 by fuzzing" in page


def test_the_traces_that_are_shipped_are_as_they_must_be() -> None:
    result = run("gate", *ALONE["golden"])
    assert result.exit_code == 0, result.output
    assert "passed         golden traces: 8 traces, 515 events" in result.stdout
    verdicts = {expected.verdict for _, expected in kept_in(SHIPPED)}
    assert verdicts == {"conforms", "violates", "incomplete"}  # a gate that cannot fail guards nothing


def test_a_golden_trace_that_violates_fails_the_gate(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path)
    files = ("--junit", "g.xml", "--sarif", "g.sarif", "--ndjson", "g.ndjson", "--markdown", "g.md")
    result = run("gate", *ALONE["golden"], "--golden", folder, *files)
    assert result.exit_code == 1
    assert "violates at event 7, match_slot; it must be: conforms" in result.stdout
    assert "❌ failed" in Path("g.md").read_text()
    (found,) = json.loads(Path("g.sarif").read_text())["runs"][0]["results"]
    assert found["ruleId"] == "I4"
    assert '<failure type="I4"' in Path("g.xml").read_text()


def test_a_golden_trace_that_must_violate_and_does_not_fails_the_gate(tmp_path: Path) -> None:
    (folder := tmp_path / "golden").mkdir()
    shutil.copy(SHIPPED / "sglang-0.5.11-basic.jsonl.gz", folder / "basic.jsonl.gz")
    (folder / "expected.json").write_text('{"traces": {"basic.jsonl.gz": {"verdict": "violates"}}}')
    result = run("gate", *ALONE["golden"], "--golden", folder, "--sarif", "g.sarif", "--junit", "g.xml")
    assert result.exit_code == 1
    assert "conforms; it must be: violates" in result.stdout
    assert json.loads(Path("g.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "blind"
    assert "it must be: violates" in Path("g.xml").read_text()


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"verdict": "violates", "fault": "F22900"}, "violates, but F22862b is named, not F22900"),
        ({"verdict": "violates", "events": 9}, "8 events were judged; it must be 9"),
    ],
)
def test_what_is_expected_of_a_trace_is_more_than_its_verdict(
    tmp_path: Path, expected: dict[str, object], said: str
) -> None:
    folder = golden_folder(tmp_path)
    (folder / "expected.json").write_text(json.dumps({"traces": {"trace.jsonl": expected}}))
    result = run("gate", *ALONE["golden"], "--golden", folder)
    assert result.exit_code == 1 and said in result.stdout


def test_what_is_expected_and_violates_is_no_result(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path)
    (folder / "expected.json").write_text('{"traces": {"trace.jsonl": {"verdict": "violates", "fault": "F22862b"}}}')
    result = run("gate", *ALONE["golden"], "--golden", folder, "--sarif", "g.sarif", "--junit", "g.xml")
    assert result.exit_code == 0
    assert json.loads(Path("g.sarif").read_text())["runs"][0]["results"] == []
    assert "<failure" not in Path("g.xml").read_text()


def test_a_trace_that_its_folder_does_not_speak_of_is_not_passed_over(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path)
    (folder / "expected.json").write_text('{"traces": {"other.jsonl": {}}}')
    result = run("gate", *ALONE["golden"], "--golden", folder)
    assert result.exit_code == 2
    assert "other.jsonl is not there, trace.jsonl is not in it" in result.stdout
    (folder / "expected.json").write_text('{"traces": {"trace.jsonl": {"verdikt": "conforms"}}}')
    assert "docs/gate.md shows the form" in run("gate", *ALONE["golden"], "--golden", folder).stdout


def test_a_golden_trace_that_cannot_be_read_is_no_pass(tmp_path: Path) -> None:
    (folder := tmp_path / "golden").mkdir()
    (folder / "broken.jsonl").write_text("no trace\n")
    result = run("gate", *ALONE["golden"], "--golden", folder)
    assert result.exit_code == 2 and "could not run" in result.stdout


def test_an_incomplete_golden_trace_has_no_verdict(tmp_path: Path) -> None:
    (folder := tmp_path / "golden").mkdir()
    shutil.copy(SHIPPED / "cut-off.jsonl.gz", folder)
    assert run("gate", *ALONE["golden"], "--golden", folder).exit_code == 3


def test_nothing_checked_is_no_pass() -> None:
    assert "nothing was checked" in refusal_of("gate", *ALONE["golden"], "--skip", "golden")


def refusal_of(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_a_fault_that_the_proof_lets_pass_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kills.prove

    def blind(fault: kills.Fault, asker: object) -> kills.Proof:
        proof = right(fault, asker=asker)
        proof.obligations = [dataclasses.replace(o, verdict="proved") for o in proof.obligations]
        return proof

    monkeypatch.setattr(kills, "prove", blind)
    monkeypatch.setattr(kills, "can_fuzz_the_reference", lambda: False)
    result = run("gate", *ALONE["kills"], "--action", "refuse", "--junit", "g.xml", "--sarif", "g.sarif")
    assert result.exit_code == 1
    assert "F22790e is not found by the proof" in result.stdout
    assert '<failure type="blind"' in Path("g.xml").read_text()
    assert json.loads(Path("g.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "blind"


def test_a_fault_that_replay_does_not_name_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "replay", lambda path: golden_traces.replay(SHIPPED / "sglang-0.5.11-basic.jsonl.gz"))
    monkeypatch.setattr(kills, "can_fuzz_the_reference", lambda: False)
    result = run("gate", *ALONE["kills"], "--action", "refuse")
    assert result.exit_code == 1 and "F22790e is not found by replay" in result.stdout


def test_a_fault_that_no_schedule_shows_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills._Fuzzer, "names", lambda *_: False)
    result = run("gate", *ALONE["kills"], "--action", "refuse")
    assert result.exit_code == 1 and "F22790e is not found by fuzzing" in result.stdout


def test_faults_of_an_action_are_found_by_all_three() -> None:
    result = run("gate", *ALONE["kills"], "--action", "refuse")
    assert result.exit_code == 0, result.output
    assert "refuse: of 1 faults 1 refuted by the proof, 1 found by replay, 1 by fuzzing" in result.stdout


def test_what_there_was_no_time_for_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "seconds_left", 0.0)
    result = run("gate", *ALONE["kills"], "--action", "match_slot", "--budget", 1)
    assert result.exit_code == 3
    assert "too little time for" in result.stdout and "F22862b" in result.stdout


def test_an_action_without_a_fault_checks_nothing() -> None:
    assert "nothing was checked" in refusal_of("gate", *ALONE["kills"], "--action", "open")


def test_a_broken_rule_fails_the_gate() -> None:
    variant = VARIANTS / "sglang_22862_old_design.py"
    result = run("gate", *ALONE["proof"], "--variant", variant, "--trust-variants", "--markdown", "g.md")
    assert result.exit_code == 1
    assert "failed         proof: sglang_22862_old_design.py: breaks" in result.stdout
    assert "is executed now, with all your rights" in result.stderr
    assert "match\\_slot breaks I7" in Path("g.md").read_text()


def test_a_variant_of_a_stranger_is_never_executed(tmp_path: Path) -> None:
    (evil := tmp_path / "evil.py").write_text("open('was-here', 'w').write('x')\nREPLACES = 'open'\n")
    assert "--trust-variants" in refusal("gate", "--variant", evil)
    assert not Path("was-here").exists()
    assert run("gate", *ALONE["proof"], "--variant", evil, "--trust-variants").exit_code == 2
    assert Path("was-here").exists()  # the test sees what it is about


def test_a_short_fuzz_finds_what_is_wrong_with_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_target.py").write_text(
        "from kvproof.conformance.fuzz.reference import Reference\n"
        "class Broken(Reference):\n"
        "    def start(self, settings, faults, tell, *, own_checks=True):\n"
        "        return super().start(settings, ('F22862a',), tell, own_checks=own_checks)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ("--target", "a_target:Broken", "--fuzz-seconds", 30, "--budget", 600, "--junit", "g.xml")
    result = run("gate", *ALONE["fuzz"], *asked)
    assert result.exit_code == 1, result.output
    assert "kvproof fuzz --target a_target:Broken --replay out/gate/fuzz/1" in result.stdout
    assert (tmp_path / "out/gate/fuzz/1/test_finding.py").exists()
    assert "F22862a" in Path("g.xml").read_text()


def test_what_is_known_of_a_target_can_be_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_known_target.py").write_text(
        "from kvproof.conformance.fuzz.reference import Reference\n"
        "class Broken(Reference):\n"
        "    seeds = ()\n"
        "    def start(self, settings, faults, tell, *, own_checks=True):\n"
        "        raise ValueError('known')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = (*ALONE["fuzz"], "--target", "a_known_target:Broken", "--fuzz-seconds", 2, "--ndjson", "g.ndjson")
    assert run("gate", *asked).exit_code == 1
    said = map(json.loads, Path("g.ndjson").read_text().splitlines())
    (signature,) = [event["signature"] for event in said if event["event"] == "trouble"]
    (accepted := tmp_path / "accepted.txt").write_text(f"# known, not mended yet\n{signature}\n")
    result = run("gate", *asked, "--accepted", accepted)
    assert result.exit_code == 0, result.output
    assert "nothing new, 1 kinds that are accepted" in result.stdout
    accepted.write_text("another signature\n")
    assert run("gate", *asked, "--accepted", accepted).exit_code == 1
    accepted.write_text("# nothing\n")
    assert "names no signature" in refusal("gate", *asked, "--accepted", accepted)


def test_a_target_that_cannot_start_is_no_pass() -> None:
    assert run("gate", *ALONE["fuzz"], "--target", "no_such_module:x").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--skip", "fuz"), "did you mean fuzz?"),
        (("--action", "finsh"), "did you mean finish"),
        (("--profile", "sglang-0.5.1"), "unknown profile"),
        (("--golden", "nowhere"), "--golden names a folder"),
        (("--profile", "sglang-0.5.11", "--variant", "x.py"), "choose one"),
        (("--markdown", "/proc/none/x.md"), "cannot write"),
    ],
)
def test_what_is_misspelt_is_said_before_the_first_step(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal("gate", *arguments)


def test_the_page_goes_to_github_too_and_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (page := tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert run("gate", *ALONE["golden"]).exit_code == 0
    assert page.read_text().startswith("before\n## kvproof gate: passed")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "x"))
    result = run("gate", *ALONE["golden"])
    assert result.exit_code == 0 and "GITHUB_STEP_SUMMARY: cannot write" in result.stderr


HOSTILE = "a|b\n| forged | ✅ passed | x |\n<img src=x> [x](http://e.vil) @everyone `code` **b** \x1b[31m"


def test_names_of_strangers_are_no_markup() -> None:
    page = markdown([Outcome("proof", "failed", HOSTILE, (HOSTILE,))], exit_code([]), {"z3": "1"}, "kvproof `x` gate")
    assert [line for line in page.splitlines() if line.startswith("|")][3:] == []
    for forbidden in ("<img", "](", "@everyone", "http://", "\x1b", " `code`"):
        assert forbidden not in page
    assert "`` kvproof `x` gate ``" in page


@pytest.mark.parametrize("text", ["a|b", "a\nb", "<b>", "`", "*", "[x]", "\u202e"])
def test_each_mark_is_written_as_itself(text: str) -> None:
    assert for_markdown(text) != text


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("passed", "not asked for"), 0),
        (("passed", "failed", "could not run", "no verdict"), 1),
        (("passed", "could not run", "no verdict"), 2),
        (("passed", "no verdict"), 3),
        (("not asked for",), 2),
        ((), 2),
    ],
)
def test_the_worst_step_decides(verdicts: tuple[str, ...], code: int) -> None:
    assert exit_code([Outcome("x", verdict, "") for verdict in verdicts]) == code  # type: ignore[arg-type]


def test_ctrl_c_ends_it_as_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Callable[..., None]:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvproof.conformance.cli.commands.gate.judge_golden", interrupted)
    result = run("gate", *ALONE["golden"], "--ndjson", "g.ndjson")
    assert result.exit_code == 130
    assert json.loads(Path("g.ndjson").read_text().splitlines()[-1])["exit_code"] == 130
