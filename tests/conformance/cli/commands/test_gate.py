"""`kvproof gate`: what passes, and each way of not passing, seen."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import refusal, require_exit
from many_traces import broken
from repository import VARIANTS
from typer.testing import Result

from kvproof.conformance.gate import golden_traces, kills
from kvproof.conformance.gate.golden_traces import SHIPPED, kept_in
from kvproof.conformance.gate.steps import Outcome, Plan, exit_code
from kvproof.conformance.gate.summary import markdown
from kvproof.conformance.printable import for_markdown

STEPS = ("proof", "kills", "golden", "fuzz")


def gate(code: int, only: str, *arguments: object) -> Result:
    """One step of the gate alone, which ends with this code; every format goes into a file of its name."""
    skipped = [part for step in STEPS if step != only for part in ("--skip", step)]
    files = ("--junit", "g.xml", "--sarif", "g.sarif", "--ndjson", "g.ndjson", "--markdown", "g.md")
    return require_exit(code, "gate", *skipped, *arguments, *files)


def rules_broken() -> list[str]:
    """Of the results of the SARIF file; the JUnit file has a failure of each."""
    rules = [result["ruleId"] for result in json.loads(Path("g.sarif").read_text())["runs"][0]["results"]]
    assert all(f'<failure type="{rule}"' in Path("g.xml").read_text() for rule in rules)
    return rules


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.mark.slow
def test_the_whole_gate_passes_on_these_rules(tmp_path: Path) -> None:
    require_exit(0, "gate", "--fuzz-seconds", 5, "--markdown", tmp_path / "gate.md", "--budget", 600)
    page = (tmp_path / "gate.md").read_text()
    assert page.startswith("## kvproof gate: passed") and page.count("✅ passed") == 4
    assert "of 42 faults 42 refuted by the proof, 41 found by replay, 28 by fuzzing" in page


def test_the_traces_that_are_shipped_are_as_they_must_be() -> None:
    assert "passed         golden traces: 8 traces, 515 events" in gate(0, "golden").stdout
    verdicts = {expected.verdict for _, expected in kept_in(SHIPPED)}
    assert verdicts == {"conforms", "violates", "incomplete"}  # a gate that cannot fail guards nothing


@pytest.mark.parametrize(
    ("trace", "expected", "code", "said", "rules"),
    [
        ("violates", None, 1, "violates at event 7, match_slot; it must be: conforms", ["I4"]),
        ("conforms", {"verdict": "violates"}, 1, "conforms; it must be: violates", ["blind"]),
        ("conforms", {"verdict": "incomplete"}, 1, "conforms; it must be: incomplete", ["golden"]),
        ("violates", {"verdict": "violates", "fault": "F22862b"}, 0, "passed", []),
        ("violates", {"verdict": "violates", "fault": "F22900"}, 1, "but F22862b is named, not F22900", ["I4"]),
        ("violates", {"verdict": "violates", "events": 9}, 1, "8 events were judged; it must be 9", ["I4"]),
        ("violates", {"verdikt": "conforms"}, 2, "docs/gate.md shows the form", []),
        ("no trace", None, 2, "could not run", []),
        ("incomplete", None, 3, "no verdict", []),
    ],
)
def test_a_golden_trace_must_come_to_what_is_expected(
    tmp_path: Path, trace: str, expected: dict[str, object] | None, code: int, said: str, rules: list[str]
) -> None:
    folder = kept(tmp_path, trace)
    if expected is not None:
        (name,) = (path.name for path in folder.iterdir())
        (folder / "expected.json").write_text(json.dumps({"traces": {name: expected}}))
    assert said in gate(code, "golden", "--golden", folder).stdout
    assert rules_broken() == rules
    marks = {0: "✅ passed", 1: "❌ failed", 2: "could not run", 3: "no verdict"}
    assert marks[code] in Path("g.md").read_text()


def kept(tmp_path: Path, trace: str) -> Path:
    """A folder of golden traces that holds one."""
    (folder := tmp_path / "golden").mkdir()
    match trace:
        case "violates":
            broken(folder / "trace.jsonl")
        case "no trace":
            (folder / "trace.jsonl").write_text("no trace\n")
        case _:
            name = {"conforms": "sglang-0.5.11-basic.jsonl.gz", "incomplete": "cut-off.jsonl.gz"}[trace]
            shutil.copy(SHIPPED / name, folder)
    return folder


def test_a_trace_that_its_folder_does_not_speak_of_is_not_passed_over(tmp_path: Path) -> None:
    folder = kept(tmp_path, "violates")
    (folder / "expected.json").write_text('{"traces": {"other.jsonl": {}}}')
    said = gate(2, "golden", "--golden", folder).stdout
    assert "other.jsonl is not there, trace.jsonl is not in it" in said


def test_a_step_that_is_left_out_says_why() -> None:
    said = gate(0, "golden").stdout
    for step in ("proof", "fuzz", "kill matrix"):
        assert f"not asked for  {step}: --skip" in said


def test_nothing_checked_is_no_pass() -> None:
    assert "nothing was checked" in gate(2, "golden", "--skip", "golden").stderr
    assert "nothing was checked" in gate(2, "kills", "--action", "open").stderr, "no fault deviates it"


def blind_proof(patch: pytest.MonkeyPatch) -> None:
    right = kills.prove

    def blind(fault: kills.Fault, asker: object) -> kills.Proof:
        proof = right(fault, asker=asker)
        proof.obligations = [dataclasses.replace(o, verdict="proved") for o in proof.obligations]
        return proof

    patch.setattr(kills, "prove", blind)
    patch.setattr(kills, "can_fuzz_the_reference", lambda: False)


def blind_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kills, "replay", lambda path: golden_traces.replay(SHIPPED / "sglang-0.5.11-basic.jsonl.gz"))
    patch.setattr(kills, "can_fuzz_the_reference", lambda: False)


def blind_fuzzing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kills._Fuzzer, "names", lambda *_: False)


@pytest.mark.parametrize(
    ("blind", "by"), [(blind_proof, "the proof"), (blind_replay, "replay"), (blind_fuzzing, "fuzzing")]
)
def test_a_fault_that_is_not_found_by_one_of_the_three_fails_the_gate(
    monkeypatch: pytest.MonkeyPatch, blind: Callable[[pytest.MonkeyPatch], None], by: str
) -> None:
    blind(monkeypatch)
    assert f"F22790e is not found by {by}" in gate(1, "kills", "--action", "refuse").stdout
    assert rules_broken() == ["blind"]


def test_faults_of_an_action_are_found_by_all_three() -> None:
    said = gate(0, "kills", "--action", "refuse").stdout
    assert "refuse: of 1 faults 1 refuted by the proof, 1 found by replay, 1 by fuzzing" in said


def test_what_there_was_no_time_for_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "seconds_left", 0.0)
    result = gate(3, "kills", "--action", "match_slot", "--budget", 1)
    assert "too little time for" in result.stdout and "F22862b" in result.stdout


def test_a_broken_rule_fails_the_gate() -> None:
    variant = VARIANTS / "sglang_22862_old_design.py"
    result = gate(1, "proof", "--variant", variant, "--trust-variants")
    assert "failed         proof: sglang_22862_old_design.py: breaks" in result.stdout
    assert "is executed now, with all your rights" in result.stderr
    assert "match\\_slot breaks I7" in Path("g.md").read_text()


def test_a_variant_of_a_stranger_is_never_executed(tmp_path: Path) -> None:
    (evil := tmp_path / "evil.py").write_text("open('was-here', 'w').write('x')\nREPLACES = 'open'\n")
    assert "--trust-variants" in refusal("gate", "--variant", evil)
    assert not Path("was-here").exists()
    gate(2, "proof", "--variant", evil, "--trust-variants")
    assert Path("was-here").exists()  # the test sees what it is about


def a_target(folder: Path, patch: pytest.MonkeyPatch, start: str, **attributes: object) -> str:
    """A target of its own: the reference, but for how it starts. Its name on the command line."""
    lines = [f"    {name} = {value!r}" for name, value in attributes.items()]
    lines += ["    def start(self, settings, faults, tell, *, own_checks=True):", f"        {start}"]
    head = "from kvproof.conformance.fuzz.reference import Reference\nclass Broken(Reference):\n"
    name = f"target_{len(start)}"
    (folder / f"{name}.py").write_text(head + "\n".join(lines) + "\n")
    patch.syspath_prepend(folder)
    return f"{name}:Broken"


def test_a_short_fuzz_finds_what_is_wrong_with_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = "return super().start(settings, ('F22862a',), tell, own_checks=own_checks)"
    target = a_target(tmp_path, monkeypatch, start)
    result = gate(1, "fuzz", "--target", target, "--fuzz-seconds", 30, "--budget", 600)
    assert f"kvproof fuzz --target {target} --replay out/gate/fuzz/1" in result.stdout
    assert (tmp_path / "out/gate/fuzz/1/test_finding.py").exists()
    assert "F22862a" in Path("g.xml").read_text()


def test_what_is_known_of_a_target_can_be_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = a_target(tmp_path, monkeypatch, "raise ValueError('known')", seeds=())
    asked = ("fuzz", "--target", target, "--fuzz-seconds", 2)
    gate(1, *asked)
    said = map(json.loads, Path("g.ndjson").read_text().splitlines())
    (signature,) = [event["signature"] for event in said if event["event"] == "trouble"]
    accepted = tmp_path / "accepted.txt"
    accepted.write_text(f"# known, unfixed\n{signature}\n")
    assert "nothing new, 1 kinds that are accepted" in gate(0, *asked, "--accepted", accepted).stdout
    accepted.write_text("another signature\n")
    gate(1, *asked, "--accepted", accepted)
    accepted.write_text("# nothing\n")
    assert "names no signature" in gate(2, *asked, "--accepted", accepted).stderr


def test_a_target_that_cannot_start_is_no_pass() -> None:
    assert "no_such_module" in gate(2, "fuzz", "--target", "no_such_module:x").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
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
    gate(0, "golden")
    assert page.read_text().startswith("before\n## kvproof gate: passed")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "x"))
    assert "GITHUB_STEP_SUMMARY: cannot write" in gate(0, "golden").stderr


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
    gate(130, "golden")
    assert json.loads(Path("g.ndjson").read_text().splitlines()[-1])["exit_code"] == 130
