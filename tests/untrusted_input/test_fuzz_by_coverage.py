"""The fuzzer of all other files runs, and finds a mistake in a reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris")

HERE = Path(__file__).parent
KEY_ERROR = "from kvproof.conformance.fuzz import schedule; schedule.ValidationError = KeyError"


def fuzz(folder: Path, seconds: int, mistake: str = "") -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport fuzz_by_coverage\n{mistake}\nfuzz_by_coverage.main()"
    )
    corpus = folder / "corpus"
    corpus.mkdir()
    options = [str(corpus), f"-max_total_time={seconds}", "-max_len=65536", f"-artifact_prefix={folder}/"]
    return subprocess.run(
        [sys.executable, "-c", program, *options], capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.slow
def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    result = fuzz(tmp_path, 15)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Done" in result.stderr


@pytest.mark.slow
def test_a_mistake_in_a_reader_is_found(tmp_path: Path) -> None:
    result = fuzz(tmp_path, 60, KEY_ERROR)
    assert result.returncode != 0, result.stderr[-3000:]
    assert "Traceback" in result.stdout + result.stderr and list(tmp_path.glob("crash-*"))
