"""Builds the wheel twice, from two copies of the sources in other folders and of another age: are the bytes the same?

    python tools/supply/reproducible_wheel.py [--epoch SECONDS] [--out DIR]

Exits with 0 and the hash if so, with 1 if the two differ. Without
--epoch the time of the last commit counts, as SOURCE_DATE_EPOCH. With --out the wheel is left there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
AGES = (1_000_000_000, 1_700_000_000)
"""When the files of the copies were touched last."""
UMASK = 0o022
"""It decides the modes of files in the wheel, so whoever builds it again must have the same."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epoch", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    epoch = given.epoch if given.epoch is not None else int(git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        wheels = [built(Path(folder) / f"copy{n * '-again'}", epoch, age) for n, age in enumerate(AGES)]
        if different := differences(*wheels):
            print(f"not reproducible: {', '.join(different)}")
            return 1
        print(f"{hash_of(wheels[0])}  {wheels[0].name}  (SOURCE_DATE_EPOCH={epoch})")
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(wheels[0], given.out / wheels[0].name)
    return 0


def built(folder: Path, epoch: int, touched: int) -> Path:
    """The wheel of the files that git knows, as they are now."""
    source, out = folder / "source", folder / "wheel"
    before = os.umask(UMASK)
    try:
        for name in git("ls-files", "-z").split("\0"):
            if name and (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, source / name)
                os.utime(source / name, (touched, touched))
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index")
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, source],
            check=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )
    finally:
        os.umask(before)
    (wheel,) = out.glob("*.whl")
    return wheel


def differences(one: Path, other: Path) -> list[str]:
    """The files that are not the same in both, or how the archives differ beside them; empty if the bytes are the same."""
    if hash_of(one) == hash_of(other):
        return []
    with zipfile.ZipFile(one) as a, zipfile.ZipFile(other) as b:
        here, there = ({i.filename: (i.CRC, i.date_time, i.external_attr) for i in z.infolist()} for z in (a, b))
    return sorted(n for n in here.keys() | there.keys() if here.get(n) != there.get(n)) or ["the order of the files"]


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
