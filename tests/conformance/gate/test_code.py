"""The gate's step for code: a function that begins to differ fails, one that differed before does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import require_exit
from small_sglang import commit_sglang, write_sglang

RIGHT = ("", "")
FREES_A_KEPT_PAGE = ("(target + page_size - 1) // page_size", "target // page_size")
ENDS_A_RETRACT = ("        if is_insert:", "        if True:")
ALL_PROVED = r"(\d+) of \1 functions proved"
ALONE = ("--skip", "proof", "--skip", "golden", "--skip", "fuzz", "--skip", "kills")


@pytest.mark.parametrize(
    ("edits", "change", "code", "said"),
    [
        ((RIGHT,), "@main", 0, rf"passed         code: checkout@main: {ALL_PROVED}"),
        ((RIGHT, FREES_A_KEPT_PAGE), "@main~1..main", 1, "differs from the rule finish: not so:"),
        ((ENDS_A_RETRACT, ENDS_A_RETRACT), "@main~1..main", 0, r"\(retract\): differs as before"),
        ((FREES_A_KEPT_PAGE, RIGHT), "@main~1..main", 0, ALL_PROVED),
    ],
    ids=["right", "newly wrong", "wrong before", "made right"],
)
def test_a_change_is_judged_by_what_it_makes_worse(
    edits: tuple[tuple[str, str], ...], change: str, code: int, said: str, tmp_path: Path
) -> None:
    repository = commit_sglang(tmp_path / "checkout", *edits)
    assert re.search(said, require_exit(code, "gate", *ALONE, "--code", f"{repository}{change}").stdout)


def test_a_function_that_differs_is_told_with_a_run(tmp_path: Path) -> None:
    told = require_exit(1, "gate", *ALONE, "--code", write_sglang(tmp_path / "code", *FREES_A_KEPT_PAGE))
    assert "after open(); create(" in " ".join((told.stdout + told.stderr).split())


def test_the_rules_are_those_of_the_profile_that_is_named(tmp_path: Path) -> None:
    folder = write_sglang(tmp_path / "code", *ENDS_A_RETRACT)
    require_exit(1, "gate", *ALONE, "--code", folder)
    told = require_exit(0, "gate", *ALONE, "--code", folder, "--profile", "sglang-0.5.17").stdout
    assert "(retract): known fault S0511a" in " ".join(told.split())


def test_what_is_not_proved_in_time_has_no_verdict(tmp_path: Path) -> None:
    folder = write_sglang(tmp_path / "code")
    told = require_exit(3, "gate", *ALONE, "--code", folder, "--cache", tmp_path / "none", "--budget", "1").stdout
    assert "): not understood" in " ".join(told.split())


def test_code_that_is_not_understood_has_no_verdict(tmp_path: Path) -> None:
    trim = "        self._trim(req.kv, prefix_len)\n"
    folder = write_sglang(tmp_path / "code", trim, f"        exec('pass')\n{trim}")
    assert "no verdict     code: " in require_exit(3, "gate", *ALONE, "--code", folder).stdout


def test_a_tree_without_a_session_cache_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    assert "none of the functions" in require_exit(2, "gate", *ALONE, "--code", tmp_path).stdout
    assert "no code to prove" in require_exit(2, "gate", *ALONE, "--code", tmp_path / "nowhere").stdout
