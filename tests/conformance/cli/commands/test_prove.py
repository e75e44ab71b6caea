"""`kvproof prove` as a user meets it: verdicts, profiles, its cache, its second solver, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from command_line import completed, of_its_own, refusal, require_exit, run
from typer.testing import Result

from kvproof.model import certify
from kvproof.model.certify import Said
from kvproof.model.questions import Asker
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import machine_of
from kvproof.spec.profiles import PROFILES

prove = partial(run, "prove")


def test_all_is_proved_with_the_bounds_said() -> None:
    result = require_exit(0, "prove")
    for part in ("every P >= 1", "unbounded", "every configuration of overlap, speculation"):
        assert part in result.stdout
    assert result.stdout.rstrip().endswith("PROVED")
    assert "…" not in result.stdout  # no column is cut


FREES_A_PAGE = "frees tokens [1, 2) = pages [0, 1)"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("--fault F22862b", ("page size 2", "8 match_slot()", FREES_A_PAGE, "✗ I4 a free starts on a page boundary")),
        ("--profile sglang-0.5.23", ("REFUTED", "6 retract()")),
    ],
)
def test_what_is_broken_gives_exit_code_1_and_a_run_in_small_numbers(changed: str, said: tuple[str, ...]) -> None:
    result = require_exit(1, "prove", *changed.split())
    assert [part for part in said if part not in result.stdout] == []


def test_without_a_compiler_it_is_said_once_that_less_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler = require_exit(1, "prove", "--fault", "F22862b")
    for module in ("conformance.cli.proving", "model.explore"):
        monkeypatch.setattr(f"kvproof.{module}.is_installed", lambda: False)
    without = require_exit(1, "prove", "--fault", "F22862b")
    assert without.stderr.count("note: without llvmlite and numpy only the smallest instances are searched") == 1
    assert "llvmlite" not in with_compiler.stderr

    def run_of(result: Result) -> str:
        return result.stdout.partition("8 match_slot()")[2]

    assert run_of(with_compiler) == run_of(without) != ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--profile", "sglang-0.5"), f"valid: {', '.join(PROFILES)}"),
        (("--profile", "sglang-0.5.23", "--fault", "F20070"), "choose one"),
        (("--fault", "F22790d", "--variant", "x.py"), "choose one"),
        (("--cache", "here", "--no-cache"), "--cache has no meaning with --no-cache"),
        (("--cache", "here", "--certify"), "--cache has no meaning with --certify"),
        (("--action", "extnd"), "did you mean extend?"),
        (("--action", "extend", "--fault", "F20070"), "--action is for the built-in rules"),
        (("--action", "extend", "--code", "x"), "leave out --action"),
        (("--certificate", "c"), "give --certify as well"),
        (("--code", "x", "--certify", "--certificate", "c"), "leave out --certify, --certificate"),
        (("--out", "t.jsonl"), "--out saves the shortest run of a changed rule"),
        (("--itf", "t.itf.json"), "--itf saves the shortest run of a changed rule"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal("prove", *arguments)


def test_json_holds_every_cell_and_the_run(tmp_path: Path) -> None:
    out = tmp_path / "proof.json"
    require_exit(1, "prove", "--fault", "F22862a", "--json", out, "-q")
    proof = json.loads(out.read_text())
    assert proof["verdict"] == "broken"
    assert proof["broken"][0] == "I7"
    assert proof["counterexample"]["steps"][-1]["action"] == "match_slot"
    assert {o["action"] for o in proof["obligations"]} == {"(initial)", "match_slot"}


@pytest.mark.parametrize("action", ["extend", "tree_lock"])
def test_one_action_is_proved_and_never_called_a_proof_of_all(action: str, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    result = require_exit(0, "prove", "--action", action, "--json", out)
    *_, warning, verdict = result.stdout.splitlines()
    assert warning.startswith(f"only {action}: no other action")
    assert verdict == f"only {action}: PROVED"
    told = json.loads(out.read_text())
    assert {cell["action"] for cell in told["obligations"]} == {action}
    assert told["verdict"] == f"only {action}: proved"


def test_an_action_that_breaks_something_is_found_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine_of("match_slot").actions, "match_slot", FAULTS["F22862b"].deviations["match_slot"])
    result = require_exit(1, "prove", "--action", "match_slot", "--no-cache", "-q")
    assert "match_slot breaks I4" in result.stdout
    assert result.stdout.splitlines()[-1] == "only match_slot: BROKEN"


def stable(result: Result) -> list[str]:
    """Lines without times."""
    return [line for line in result.stdout.splitlines() if " s)" not in line and "goals," not in line]


# --- cache ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_second_run_asks_nothing_and_says_the_same(tmp_path: Path) -> None:
    first = prove("--cache", tmp_path, "--json", tmp_path / "1.json")
    second = prove("--cache", tmp_path, "--json", tmp_path / "2.json")
    assert first.exit_code == second.exit_code == 0
    assert stable(first) == stable(second)
    assert "note" not in first.stderr
    assert f"answers are from {tmp_path}" in second.stderr
    assert json.loads((tmp_path / "1.json").read_text())["answers_from_cache"] == 0
    assert json.loads((tmp_path / "2.json").read_text())["answers_from_solver"] == 0


def test_the_variable_names_the_folder_and_no_cache_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "here"))
    require_exit(1, "prove", "--no-cache", "--fault", "F22790d", "-q")
    assert not (tmp_path / "here").exists()
    prove("--fault", "F22790d", "-q")
    assert list((tmp_path / "here").rglob("*.json"))


def test_a_cache_that_cannot_be_written_is_noted_and_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = require_exit(1, "prove", "--cache", tmp_path / "file", "--fault", "F22790d", "-q")
    assert "note: nothing is kept in" in result.stderr


# --- certificate ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_certified_proof_names_both_solvers(tmp_path: Path) -> None:
    pytest.importorskip("cvc5")
    out = tmp_path / "r.json"
    result = require_exit(0, "prove", "--certify", "-q", "--json", out)
    assert "z3 " in result.stdout and "cvc5 " in result.stdout
    assert result.stdout.splitlines()[-2:] == ["CERTIFIED", "PROVED"]
    certificate = json.loads(out.read_text())["certificate"]
    assert certificate["verdict"] == "agree"
    assert certificate["asked"] > len(ACTIONS)


def test_the_counterexamples_of_a_fault_are_evaluated_by_the_oracle() -> None:
    pytest.importorskip("cvc5")
    result = require_exit(1, "prove", "--certify", "--fault", "F22862b")
    assert "counterexamples evaluated by the oracle: each fails as said" in result.stdout
    assert result.stdout.splitlines()[-2:] == ["CERTIFIED", "BROKEN"]


def test_a_certificate_in_a_folder_says_what_nobody_checked(tmp_path: Path) -> None:
    pytest.importorskip("cvc5")
    folder = tmp_path / "certificate"
    result = require_exit(1, "prove", "--certify", "--fault", "F994e", "--certificate", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["rules"], manifest["verdict"], manifest["proof_verdict"]) == ("F994e", "agree", "broken")
    assert 0 < manifest["covered"] < manifest["asked"] == len(manifest["files"])
    assert f"{manifest['covered']} of {manifest['asked']} questions covered by both solvers" in result.stdout
    assert f"{manifest['proofs']} proofs by cvc5, none with holes; not checked by a third tool" in result.stdout
    assert f"{folder}: is not empty" in refusal("prove", "--certify", "--certificate", folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "code", "word", "line"),
    [
        ("sat", 1, "DISPUTED", "NOT CERTIFIED: the solvers"),
        ("unknown", 3, "UNKNOWN", "NOT CERTIFIED: a solver gave"),
    ],
)
def test_what_the_second_solver_does_not_confirm_is_no_pass(
    said: str, code: int, word: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certify, "cvc5_solver", lambda **_: lambda text: Said(said))
    result = prove("--certify", "-q")
    assert result.exit_code == code
    assert line in result.stdout
    assert f"cvc5 {certify.cvc5_version()}: {'broken' if said == 'sat' else said}" in result.stdout
    assert result.stdout.splitlines()[-1] == word


def test_without_the_second_solver_the_answer_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    assert "pip install 'kvproof[certify]'" in refusal("prove", "--certify")


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_shows_the_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, stop_at = Asker.answers, list(ACTIONS)[2]

    def answers(self, question):
        if question.name == f"induction: {stop_at}":
            raise KeyboardInterrupt
        return ask(self, question)

    monkeypatch.setattr(Asker, "answers", answers)
    result = require_exit(130, "prove", "--no-cache")
    rows = [line.split()[0] for line in result.stdout.splitlines() if "✓" in line]
    assert rows == ["(initial)", *list(ACTIONS)[:2]]
    assert "stopped after 3 actions and 0 lemmas: a part is not a proof" in result.stdout
    assert "PROVED" not in result.stdout
    assert "interrupted" in result.stderr


def test_a_real_signal_ends_with_130(tmp_path: Path) -> None:
    name = next(iter(ACTIONS))
    file = tmp_path / "stops.py"
    file.write_text(
        "import os, subprocess\nfrom kvproof.spec.actions import ACTIONS\n"
        f"REPLACES = {name!r}\nrun = ACTIONS[REPLACES].run\n"
        "subprocess.Popen(['sh', '-c', f'sleep 4; kill -INT {os.getppid()}'])  # while the proof is running\n"
    )
    # Whoever runs the tests in the background may have told its children to ignore the signal.
    result = completed(
        of_its_own("prove", "--variant", file, "--no-cache"),
        timeout=300,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert result.returncode == 130
    assert "a part is not a proof" in result.stdout
    assert "Traceback" not in result.stderr
