"""Hostile files by coverage: `make fuzz-traces`, `make fuzz-files`. Needs atheris (pip install -e '.[dev]').

    python tests/untrusted_input/fuzz_by_coverage.py traces|files FOLDER|FILE [--compiled] [libFuzzer's options]

searches from the inputs in a folder, or tries one input again. What an input becomes and what is promised of it is in
`strange_traces.py` and `strange_files.py`. The first byte of an input of the latter says the kind of the file; its changes are
those of `strange_files.spoilt` as often as libFuzzer's: random bytes break the JSON of a state, or its seal, and nothing behind
them would ever be reached.
"""

from __future__ import annotations

import random
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parent))


def readers(what: str) -> Any:
    """What tries an input, in readers that count their branches: only a module that was not imported before does."""
    with atheris.instrument_imports(include=["kvproof.conformance", "kvproof.model"]):
        return import_module({"traces": "strange_traces", "files": "strange_files"}[what])


def main() -> None:
    what = sys.argv.pop(1)
    subject = readers(what)
    if "--compiled" in sys.argv:
        sys.argv.remove("--compiled")
        subject.CHECKERS.append("compiled")
    if what == "traces":
        atheris.Setup([*sys.argv, f"-dict={subject.dictionary()}"], subject.try_input)
    else:
        files = Files(subject)
        if (corpus := Path(sys.argv[1])).is_dir():
            files.leave_examples(corpus)
        atheris.Setup(sys.argv, files.try_input, custom_mutator=files.changed)
    atheris.Fuzz()


class Files:
    """Inputs that are files of several kinds."""

    def __init__(self, subject: Any) -> None:
        self.spoilt, self.promise, self.kinds = subject.spoilt, subject.promise, tuple(subject.KINDS.items())
        self.folder = Path(tempfile.mkdtemp(prefix="kvproof-fuzz-"))

    def kind_of(self, data: bytes) -> Any:
        return self.kinds[data[0] % len(self.kinds)][1]

    def try_input(self, data: bytes) -> None:
        if data:
            self.promise(self.kind_of(data), data[1:], self.folder)

    def changed(self, data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if not data or rng.random() < 0.5:
            return atheris.Mutate(data, most)
        return (data[:1] + self.spoilt(data[1:], self.kind_of(data).is_json, rng))[:most]

    def leave_examples(self, corpus: Path) -> None:
        """One of each kind, where the search begins."""
        for place, (name, kind) in enumerate(self.kinds):
            with tempfile.TemporaryDirectory() as apart:
                (corpus / f"example-{name}").write_bytes(bytes([place]) + kind.example(Path(apart)))


if __name__ == "__main__":
    main()
