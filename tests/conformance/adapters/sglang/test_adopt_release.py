"""Rows of releases that were taken in: the page is of the data, and what differs is found."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from unittest.mock import Mock

import adopt_release
import install_apart
import pytest
from adopt_release import ADOPTED, SECONDS, TABLE, numbers, other_verdicts, seconds_of_row, table
from install_apart import asked_for


def test_the_page_has_the_rows_of_the_data() -> None:
    rows = json.loads(ADOPTED.read_text())
    assert rows and TABLE.read() == table(rows)


def test_a_run_that_another_release_judges_otherwise_or_cannot_do_is_named() -> None:
    known = {"basic": {"1": "conforms", "4": "conforms"}, "v1": {"1": "conforms"}}
    here = {"basic-p1": "conforms", "basic-p4": "violates: insert"}
    assert dict(other_verdicts(here, known)) == {
        "basic-p4": ("violates: insert", "conforms"),
        "v1-p1": ("cannot run", "conforms"),
    }
    assert numbers("0.5.10.post1") > numbers("0.5.10") > numbers("0.5.9")


def test_of_what_a_release_asks_for_a_version_that_is_known_to_work_is_taken(tmp_path: Path) -> None:
    written = tmp_path / "made-1.0.dist-info"
    written.mkdir()
    asked = ("transformers==5.12.1", "huggingface-hub>=1.0", "tokenizers>=99", "torch", "extra1; extra == 'all'")
    lines = ["Metadata-Version: 2.1", "Name: made", "Version: 1.0", *(f"Requires-Dist: {one}" for one in asked)]
    (written / "METADATA").write_text("\n".join(lines) + "\n")
    found = asked_for(tmp_path, "made", "transformers", "huggingface-hub", "tokenizers", "extra1")
    assert found == ["transformers==5.12.1", "huggingface-hub==1.33.0", "tokenizers>=99"]


def test_a_release_that_pip_cannot_install_is_named_and_has_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ADOPTED.read_text()
    monkeypatch.setattr(adopt_release, "make", Mock())
    monkeypatch.setattr(install_apart, "SITES", tmp_path)
    monkeypatch.setattr(install_apart, "pip", Mock(side_effect=subprocess.CalledProcessError(1, "pip")))
    monkeypatch.setattr("sys.argv", ["adopt_release.py", "9.9.9"])
    assert adopt_release.main() == 1
    assert capsys.readouterr().err == "error: SGLang 9.9.9: pip cannot install sglang==9.9.9; above it says why\n"
    assert ADOPTED.read_text() == before and not any(tmp_path.iterdir())


def test_a_release_is_fuzzed_again_for_as_long_as_its_row_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "adopted.json"
    monkeypatch.setattr(adopt_release, "ADOPTED", rows)
    assert seconds_of_row("0.5.18") == SECONDS
    rows.write_text(json.dumps({"0.5.18": {"seconds": 600}}))
    assert seconds_of_row("0.5.18") == 600 and seconds_of_row("0.5.19") == SECONDS
