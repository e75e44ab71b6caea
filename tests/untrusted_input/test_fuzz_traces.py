"""The fuzzer of hostile traces runs, and finds something where there is something to find."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris")

HERE = Path(__file__).parent


def fuzz(*options: object, program: str | None = None) -> subprocess.CompletedProcess[str]:
    start = [str(HERE / "fuzz_traces.py")] if program is None else ["-c", program]
    return subprocess.run(
        [sys.executable, *start, *map(str, options)], capture_output=True, text=True, check=False, timeout=600
    )


def test_every_input_of_the_corpus_is_judged_or_refused(tmp_path: Path) -> None:
    result = fuzz(HERE / "corpus", "-runs=0", f"-artifact_prefix={tmp_path}/")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Done" in result.stderr


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("target.replays.replay = lambda path, checker: {}['nothing']", "KeyError"),
        ("target.events_in = lambda batch: []", "AssertionError"),
        ("target.source_of = lambda file: None", "AssertionError"),
    ],
)
def test_a_broken_promise_is_found(tmp_path: Path, bug: str, said: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport fuzz_traces as target\n"
    program += f"target.OTHER = target.Event(seq=9, action='open')\n{bug}\ntarget.main()"
    result = fuzz(HERE / "corpus", "-runs=0", f"-artifact_prefix={tmp_path}/", program=program)
    assert result.returncode != 0 and said in result.stdout + result.stderr


@pytest.mark.slow
def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    shutil.copytree(HERE / "corpus", tmp_path / "corpus")
    result = fuzz(tmp_path / "corpus", "-max_total_time=20", "-max_len=16384", f"-artifact_prefix={tmp_path}/")
    assert result.returncode == 0, result.stderr[-3000:]
    runs = re.search(r"Done (\d+) runs", result.stderr)
    assert runs is not None and int(runs[1]) > len(list((HERE / "corpus").iterdir()))
