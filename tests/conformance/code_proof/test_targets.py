"""Where code to prove is found, and what is answered where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_jax import write_jax
from small_sglang import commit_sglang, write_sglang

from kvproof.conformance.code_proof.engines import claims_of
from kvproof.conformance.code_proof.targets import Target, targets_of
from kvproof.conformance.errors import UserError
from kvproof.model.code.source import Sources
from kvproof.spec.actions import ACTIONS

MODULE = "sglang/srt/session/streaming_session.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, with the package in python/ as a checkout has it."""
    right = "        self._inflight = False\n        if self.req_nodes"
    return commit_sglang(tmp_path / "checkout", ("", ""), (right, right.replace("self._inflight = False", "pass")))


def test_a_wheel_says_its_version(tmp_path: Path) -> None:
    (write_sglang(tmp_path) / "sglang-0.5.20.dist-info").mkdir()
    [target] = targets_of(str(tmp_path))

    assert target.version == "0.5.20" and "0.5.20" in target.label
    assert target.tree.read(MODULE) is not None
    assert Path(target.place(MODULE)).is_file()


def test_the_rules_are_those_of_the_name_or_of_the_release(tmp_path: Path) -> None:
    (write_sglang(tmp_path) / "sglang-0.5.20.dist-info").mkdir()
    [target] = targets_of(str(tmp_path))
    found = [target.profile(name) for name in (None, "auto", "sglang-0.5.11")]

    assert [profile and profile.name for profile in found] == ["sglang-0.5.19", "sglang-0.5.19", "sglang-0.5.11"]
    assert Target(target.tree, "no version").profile("auto") is None


def test_a_checkout_has_the_package_in_python(repository: Path) -> None:
    [target] = targets_of(str(repository))

    assert target.version is None
    assert Path(target.place(MODULE)) == repository / "python" / MODULE


def test_the_server_is_the_one_whose_package_is_there(tmp_path: Path) -> None:
    [target] = targets_of(str(write_jax(tmp_path)))

    assert target.profile("auto") is None
    assert {claim.module for claim in claims_of(Sources(target.tree), ACTIONS)} >= {"sgl_jax.srt.mem_cache.radix_cache"}


def test_commits_are_read_without_a_checkout(repository: Path) -> None:
    before, after = targets_of(f"{repository}@main~1..main")
    texts = [target.tree.read("sglang/srt/session/session_controller.py") for target in (before, after)]

    assert texts[0] != texts[1] and None not in texts
    assert after.place(MODULE) == f"python/{MODULE}"
    assert "main" in after.label
    [alone] = targets_of(f"{repository}@main")
    assert alone == after


def test_a_commit_without_a_repository_is_of_the_one_here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)

    assert [target.label for target in targets_of("main~1..main")] == ["checkout@main~1", "checkout@main"]
    assert len(targets_of("@main")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{folder}/nowhere", "no code to prove"),
        ("{folder}", "holds no package 'sglang'"),
        ("{folder}@main", "no commit 'main'"),
        ("{repository}@gone", "no commit 'gone'"),
        ("{repository}@main..", "give two"),
        ("{repository}@--help", "no commit '--help'"),
        ("installed", "no sglang is installed"),
    ],
)
def test_where_no_code_is_the_answer_says_what_can_be_given(
    text: str, said: str, repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(UserError, match=said):
        targets_of(text.format(folder=folder, repository=repository))
