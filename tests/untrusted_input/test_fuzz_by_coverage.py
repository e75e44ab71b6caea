"""What the fuzzer promises of traces holds of its corpus, and the fuzzer runs; a mistake in a reader is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import strange_traces
from command_line import completed

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LOSES_THE_ERROR = "from kvproof.conformance.fuzz import schedule; schedule.ValidationError = KeyError"
RUNS = 40_000
"""Far more than are needed to find that; by seconds it would depend on what else the machine does."""


def try_the_corpus() -> int:
    inputs = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    for data in inputs:
        strange_traces.try_input(data)
    return len(inputs)


def test_every_input_of_the_corpus_is_judged_or_refused() -> None:
    assert try_the_corpus() > 100


@pytest.mark.parametrize(
    ("reader", "mistake", "error"),
    [
        ("strange_traces.replays.replay", lambda path, checker: {}["nothing"], KeyError),
        ("both_readings.events_of", lambda batch: [], AssertionError),
        ("strange_traces.source_of", lambda file: None, AssertionError),
    ],
)
def test_a_broken_promise_is_found(
    reader: str, mistake: Callable[..., Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, mistake)
    with pytest.raises(error):
        try_the_corpus()


def fuzz(what: str, corpus: Path, limit: str, mistake: str = "") -> subprocess.CompletedProcess[str]:
    pytest.importorskip("atheris")
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport fuzz_by_coverage as fuzzer\n"
    program += f"fuzzer.readers({what!r})\n{mistake}\nfuzzer.main()"
    options = (limit, "-max_len=16384", f"-artifact_prefix={corpus.parent}/")
    return completed([sys.executable, "-c", program, what, corpus, *options], timeout=3000)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["traces", "files"])
def test_a_short_run_finds_nothing(what: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(CORPUS, corpus) if what == "traces" else corpus.mkdir()
    result = fuzz(what, corpus, "-max_total_time=20")
    assert result.returncode == 0, result.stderr[-3000:]
    runs = re.search(r"Done (\d+) runs", result.stderr)
    assert runs is not None and int(runs[1]) > len(list(corpus.iterdir()))


@pytest.mark.slow
def test_a_mistake_in_a_reader_is_found(tmp_path: Path) -> None:
    (corpus := tmp_path / "corpus").mkdir()
    result = fuzz("files", corpus, f"-runs={RUNS}", LOSES_THE_ERROR)
    assert result.returncode != 0, result.stderr[-3000:]
    assert "Traceback" in result.stdout + result.stderr and list(tmp_path.glob("crash-*"))
