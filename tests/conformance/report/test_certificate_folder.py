"""A certificate in a folder is read from the files alone, and a false one is noticed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import z3

from kvproof.conformance.errors import UserError
from kvproof.conformance.report.certificate_folder import CertificateFolder, Manifest
from kvproof.conformance.report.check_certificate import main
from kvproof.model.certify import Certifying, Said, cvc5_solver
from kvproof.model.prove import base_case, step_question
from kvproof.model.questions import Posed, Question
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES
from kvproof.spec.progress import ACTIONS

PROGRESS = next(machine for machine in MACHINES if machine.actions is ACTIONS)
X = z3.Int("x")
Z3 = [sys.executable, "-c", "import sys, z3; s = z3.Solver(); s.from_file(sys.argv[1]); print(s.check())"]
"""The command of a solver, which knows nothing but the file."""


def written(folder: Path, *questions: Question, second: Callable[[str], Said] | None = None) -> Manifest:
    """What is asked about questions, as a certificate."""
    made = CertificateFolder(folder)
    asker = Certifying(second, keep=made.keep)
    for question in questions:
        asker.answers(question)
    return made.conclude("some rules", "proved", asker.certificate)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of the smallest machine."""
    pytest.importorskip("cvc5")
    folder = tmp_path_factory.mktemp("certificate") / "whole"
    written(folder, base_case(PROGRESS), *map(step_question, ACTIONS.values()))
    return folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(kept, tmp_path / "copy"))


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def first_goal(folder: Path) -> dict[str, Any]:
    return next(asked for asked in manifest_of(folder)["files"] if asked["expected"] == "unsat")


def test_a_solver_that_knows_only_the_files_says_what_is_expected(kept: Path) -> None:
    done = subprocess.run([sys.executable, kept / "check.py", *Z3], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "as expected"
    asked = manifest_of(kept)["files"]
    words = [asked["expected"] for asked in asked]
    assert f"{words.count('sat')} sat, {words.count('unsat')} unsat" in done.stdout
    assert all(asked["covered"] for asked in asked)


def test_so_does_the_second(kept: Path) -> None:
    solve = cvc5_solver()
    for asked in manifest_of(kept)["files"]:
        assert solve((kept / asked["file"]).read_text()).word == asked["expected"], asked["file"]


def test_a_file_says_what_it_asks_and_of_which_rule(kept: Path) -> None:
    asked = next(a for a in manifest_of(kept)["files"] if a["action"] == "force_retract" and a["about"] == "I18")
    lines = (kept / asked["file"]).read_text().splitlines()
    assert lines[:4] == [
        "; question: induction: force_retract",
        "; source: sglang-jax #994",
        "; asks: I18: An admitted request can progress: no cycle of retracts without a decode step."
        if asked["sentence"].startswith("An")
        else f"; asks: I18: {asked['sentence']}",
        "; expected: unsat",
    ]


def test_each_unsat_has_a_proof_of_that_file(kept: Path) -> None:
    manifest = manifest_of(kept)
    for asked in manifest["files"]:
        assert bool(asked["proof"]) == (asked["expected"] == "unsat")
        if asked["proof"]:
            first = (kept / asked["proof"]["file"]).read_text().splitlines()[0]
            assert first == f'(reference "{Path(asked["file"]).name}")'
    assert (manifest["proofs_with_holes"], manifest["proofs_checked"]) == (0, 0)


def test_the_manifest_says_what_it_does_not_cover(kept: Path) -> None:
    assert {"translation", "induction", "page lemmas", "liveness", "explicit search", "proofs", "a server"} == set(
        manifest_of(kept)["not_covered"]
    )


def change_a_question(folder: Path, asked: dict[str, Any]) -> str:
    file = folder / asked["file"]
    file.write_text(file.read_text() + "; one more line\n")
    return "changed"


def change_a_proof(folder: Path, asked: dict[str, Any]) -> str:
    (folder / asked["proof"]["file"]).write_text("(step @p1 false :rule trust)\n")
    return "changed"


def lose_a_question(folder: Path, asked: dict[str, Any]) -> str:
    (folder / asked["file"]).unlink()
    return "missing"


def add_a_question(folder: Path, asked: dict[str, Any]) -> str:
    shutil.copy(folder / asked["file"], folder / "questions" / "more.smt2")
    return "more.smt2: not in the manifest"


@pytest.mark.parametrize("change", [change_a_question, change_a_proof, lose_a_question, add_a_question])
def test_what_is_not_as_it_was_written_is_noticed(
    change: Callable[[Path, dict[str, Any]], str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], folder) == 0
    said = change(folder, first_goal(folder))
    assert main([], folder) == 1
    assert said in capsys.readouterr().out


def test_a_false_question_with_its_own_digest_is_answered_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    false = Question("a question", lambda: Posed([X > 1], {("I1", "x is large"): X > 2}))
    manifest = written(tmp_path, false, second=lambda text: Said("unsat"))
    for asked in manifest.files:  # as if both solvers had said what is expected
        asked.z3.said = asked.cvc5.said = asked.expected
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json())
    assert main([], tmp_path) == 0
    assert main(Z3, tmp_path) == 1
    assert "says 'sat', expected unsat" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["sat", "unknown", ""])
def test_what_a_solver_does_not_say_is_not_covered(word: str, tmp_path: Path) -> None:
    true = Question("a question", lambda: Posed([X > 1], {("I1", "x is positive"): X > 0}, possible=False))
    manifest = written(tmp_path, true, second=lambda text: Said(word))
    assert (manifest.asked, manifest.covered) == (1, 0)
    assert main([], tmp_path) == 1


def test_a_broken_rule_is_not_covered_though_both_solvers_agree(tmp_path: Path) -> None:
    pytest.importorskip("cvc5")
    manifest = written(tmp_path, step_question(FAULTS["F994e"].deviate()))
    assert manifest.verdict == "agree"
    assert [asked.about for asked in manifest.files if not asked.covered] == ["I18"]
    assert main([], tmp_path) == 1


def test_a_step_without_a_reason_is_a_hole(tmp_path: Path) -> None:
    true = Question("a question", lambda: Posed([X > 1], {("I1", "x is positive"): X > 0}, possible=False))
    manifest = written(
        tmp_path, true, second=lambda text: Said("unsat", proof="(step @p false :rule trust :args (false))")
    )
    assert (manifest.proofs, manifest.proofs_with_holes) == (1, 1)


def test_a_checker_of_proofs_must_say_that_each_is_correct(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    says = [sys.executable, "-c", "import sys; print(sys.argv[1])"]
    assert main(["--proofs", *says[:-1], "print('correct')"], kept) == 0
    assert main(["--proofs", *says[:-1], "print('incomplete')"], kept) == 1
    assert main(["--proofs", *says[:-1], "print('correct'); raise SystemExit(1)"], kept) == 1
    assert main(["--proofs"], kept) == 2
    assert "expected correct" in capsys.readouterr().out


def test_a_question_without_its_proof_is_noticed(tmp_path: Path) -> None:
    true = Question("a question", lambda: Posed([X > 1], {("I1", "x is positive"): X > 0}, possible=False))
    written(tmp_path, true, second=lambda text: Said("unsat"))
    assert main([], tmp_path) == 0
    assert main(["--proofs", sys.executable, "-c", "print('correct')"], tmp_path) == 1


def test_nothing_asked_and_nothing_there_is_no_certificate(tmp_path: Path) -> None:
    assert main([], tmp_path) == 2
    written(tmp_path, second=lambda text: Said("unsat"))
    assert main([], tmp_path) == 1


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.smt2").write_text("")
    with pytest.raises(UserError, match="is not empty"):
        CertificateFolder(tmp_path)
