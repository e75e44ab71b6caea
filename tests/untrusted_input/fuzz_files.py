"""Hostile files of every kind but traces, spoilt at random: `make fuzz-files FUZZ_SECONDS=600`.

python tests/untrusted_input/fuzz_files.py FOLDER --seconds 30 --seed 0 [--only KIND] [--compiled]: what breaks the promise is
left in FOLDER, and tried again by `--again FILE`.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import strange_files
from strange_files import KINDS, promise, spoilt

MEMORY = 4 * 2**30
"""Bytes of address space: a file that asks for more ends the program."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--again", type=Path, help="a file that was left: KIND-…")
    given = parser.parse_args()
    if given.compiled:
        strange_files.CHECKERS.append("compiled")
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="kvproof-fuzz-files-") as folder:
        if given.again is not None:
            print(
                "taken"
                if promise(KINDS[given.again.name.partition("-")[0]], given.again.read_bytes(), Path(folder))
                else "refused"
            )
            return 0
        return search(given, Path(folder))


def search(given: argparse.Namespace, folder: Path) -> int:
    rng, broken, counts = random.Random(given.seed), 0, {name: [0, 0] for name in given.only or KINDS}
    examples = {}
    for name in counts:
        with tempfile.TemporaryDirectory() as apart:
            examples[name] = KINDS[name].example(Path(apart))
        assert promise(KINDS[name], examples[name], folder), name
    end = time.monotonic() + given.seconds
    seen: set[str] = set()
    while time.monotonic() < end:
        for name in counts:
            data = spoilt(examples[name], KINDS[name].is_json, rng)
            counts[name][0] += 1
            try:
                counts[name][1] += promise(KINDS[name], data, folder)
            except Exception as error:
                kind = f"{name}-{type(error).__name__}-{where(error)}"
                if kind not in seen:
                    seen.add(kind)
                    broken += 1
                    given.folder.mkdir(parents=True, exist_ok=True)
                    (given.folder / kind).write_bytes(data)
                    print(f"BROKEN {kind}: {str(error)[:200]}", flush=True)
    for name, (tried, taken) in counts.items():
        print(f"{name:<11} {tried:>8,} files, {taken:>7,} taken, the others refused")
    return 1 if broken else 0


def where(error: BaseException) -> str:
    """The innermost line of kvproof's, as a name."""
    place, trace = "nowhere", error.__traceback__
    while trace is not None:
        name = Path(trace.tb_frame.f_code.co_filename)
        if "site-packages" not in name.parts and "lib" not in name.parts:
            place = f"{name.stem}.{trace.tb_lineno}"
        trace = trace.tb_next
    return place


if __name__ == "__main__":
    sys.exit(main())
