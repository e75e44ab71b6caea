"""Hostile files of every kind but traces, by coverage: `make fuzz-files`, where atheris is installed.

The first byte of an input says the kind of the file. Changes are those of `strange_files.spoilt` as often as libFuzzer's: random
bytes break the JSON of a state, or its seal, and nothing behind them would ever be reached.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["kvproof.conformance", "kvproof.model"]):
    from strange_files import KINDS, promise, spoilt

NAMES = tuple(KINDS)
FOLDER = Path(tempfile.mkdtemp(prefix="kvproof-fuzz-"))


def test_one_input(data: bytes) -> None:
    if data:
        promise(KINDS[NAMES[data[0] % len(NAMES)]], data[1:], FOLDER)


def changed(data: bytes, most: int, seed: int) -> bytes:
    rng = random.Random(seed)
    if not data or rng.random() < 0.5:
        return atheris.Mutate(data, most)
    kind = KINDS[NAMES[data[0] % len(NAMES)]]
    return (data[:1] + spoilt(data[1:], kind.is_json, rng))[:most]


def examples(corpus: Path) -> None:
    """One of each kind, where the search begins."""
    for place, name in enumerate(NAMES):
        with tempfile.TemporaryDirectory() as apart:
            (corpus / f"example-{name}").write_bytes(bytes([place]) + KINDS[name].example(Path(apart)))


def main() -> None:
    examples(Path(sys.argv[1]))
    atheris.Setup(sys.argv, test_one_input, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
