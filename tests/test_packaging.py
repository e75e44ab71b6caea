"""What a user installs: one top-level package, whatever the folders of the repository are called."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
# Folder of the repository -> where it is installed.
ROOMS = {
    "package": "kvproof",
    "spec": "kvproof/spec",
    "model": "kvproof/model",
    "impl": "kvproof/impl",
    "kernels": "kvproof/kernels",
    "conformance": "kvproof/conformance",
}


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> list[PurePosixPath]:
    """The files of a wheel built offline, from a copy: an old `build` folder would put deleted modules into it."""
    source = tmp_path_factory.mktemp("source")
    for name in ROOMS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(source)], capture_output=True
    )
    assert built.returncode == 0, built.stderr.decode()
    (wheel,) = out.glob("kvproof-*.whl")
    return [PurePosixPath(name) for name in zipfile.ZipFile(wheel).namelist()]


def test_the_wheel_installs_nothing_but_kvproof(wheel_files: list[PurePosixPath]) -> None:
    tops = {path.parts[0] for path in wheel_files}
    assert "kvproof" in tops
    assert len(tops) == 2 and all(top == "kvproof" or top.endswith(".dist-info") for top in tops)


def test_every_module_is_in_the_wheel(wheel_files: list[PurePosixPath]) -> None:
    ours = {
        PurePosixPath(target) / path.relative_to(ROOT / folder).as_posix()
        for folder, target in ROOMS.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert ours <= set(wheel_files), "add the missing folders to tool.setuptools.packages"


def test_the_wheel_says_that_it_is_typed(wheel_files: list[PurePosixPath]) -> None:
    assert PurePosixPath("kvproof/py.typed") in wheel_files
