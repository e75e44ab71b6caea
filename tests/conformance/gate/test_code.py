"""The gate's step for code: a function that begins to differ fails, one that differed before does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import require_exit
from small_sglang import commit_sglang, write_sglang

RIGHT = ("", "")
FREES_A_KEPT_PAGE = ("(target + page_size - 1) // page_size", "target // page_size")
ENDS_A_RETRACT = ("        if is_insert:", "        if True:")
ALONE = ("--skip", "proof", "--skip", "golden", "--skip", "fuzz", "--skip", "kills")


@pytest.mark.parametrize(
    ("edits", "change", "code", "said"),
    [
        ((RIGHT,), "@main", 0, "passed         code: checkout@main: 19 of 19 functions proved"),
        ((RIGHT, FREES_A_KEPT_PAGE), "@main~1..main", 1, "differs from the rule finish: not so:"),
        ((ENDS_A_RETRACT, ENDS_A_RETRACT), "@main~1..main", 0, "(retract): differs as before"),
        ((FREES_A_KEPT_PAGE, RIGHT), "@main~1..main", 0, "19 of 19 functions proved"),
    ],
    ids=["right", "newly wrong", "wrong before", "made right"],
)
def test_a_change_is_judged_by_what_it_makes_worse(
    edits: tuple[tuple[str, str], ...], change: str, code: int, said: str, tmp_path: Path
) -> None:
    repository = commit_sglang(tmp_path / "checkout", *edits)
    assert said in require_exit(code, "gate", *ALONE, "--code", f"{repository}{change}").stdout


def test_code_that_is_not_understood_has_no_verdict(tmp_path: Path) -> None:
    trim = "        self._trim(req.kv, prefix_len)\n"
    folder = write_sglang(tmp_path / "code", trim, f"        exec('pass')\n{trim}")
    assert "no verdict     code: " in require_exit(3, "gate", *ALONE, "--code", folder).stdout


def test_a_tree_without_a_session_cache_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    assert "none of the functions" in require_exit(2, "gate", *ALONE, "--code", tmp_path).stdout
    assert "no code to prove" in require_exit(2, "gate", *ALONE, "--code", tmp_path / "nowhere").stdout
