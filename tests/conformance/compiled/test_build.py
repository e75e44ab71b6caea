"""The checker is built once, says when that takes a while, and is kept."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from kvproof.conformance.compiled import build


def a_loop(folder: Path, *, is_loaded: bool) -> SimpleNamespace:
    return SimpleNamespace(overloads=[1] if is_loaded else [], stats=SimpleNamespace(cache_path=str(folder)))


@pytest.mark.parametrize(
    ("is_loaded", "is_kept", "told"),
    [(False, False, [f"compiling the checker, about {build.SECONDS} s, once"]), (False, True, []), (True, False, [])],
)
def test_who_waits_for_the_first_compilation_is_told(
    is_loaded: bool, is_kept: bool, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_kept:
        (tmp_path / "checker.nbi").touch()
    monkeypatch.setattr(build, "_compiled_loop", lambda: a_loop(tmp_path, is_loaded=is_loaded))
    said: list[str] = []
    build.compiled_loop(said.append)
    assert said == told


def test_the_loop_knows_no_rule() -> None:
    """So it is compiled once for all releases: its text has numbers for the names of the layout, and no rule in it."""
    text = build.loop_source()
    assert not re.search(r"\bat\.[A-Z]", text) and "def judge_events(" in text
    assert "take_finish" not in text and "weigh_invariants" not in text


def test_code_that_is_kept_is_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    path = tmp_path / "folder" / "rules.o"
    assert [build._kept_code(path, make) for _ in range(2)] == [b"code", b"code"]
    assert len(made) == 1


def test_code_that_others_could_have_written_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "rules.o").write_bytes(b"of somebody else")
    folder.chmod(0o777)
    assert build._kept_code(folder / "rules.o", lambda: b"ours") == b"ours"
