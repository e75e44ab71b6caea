"""What a user installs: one top-level package, whatever the folders of the repository are called."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import PurePosixPath

import pytest
from import_graph import ROOT, modules, reached_from
from layout_drawing import PACKAGES

from kvproof.conformance.cli.command_table import COMMANDS


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> list[PurePosixPath]:
    """The files of a wheel built offline, from a copy: an old `build` folder would put deleted modules into it."""
    source = tmp_path_factory.mktemp("source")
    for name in PACKAGES:
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


def test_every_module_is_in_the_wheel_and_it_is_typed(wheel_files: list[PurePosixPath]) -> None:
    ours = {
        PurePosixPath(*package.split("."), path.relative_to(ROOT / folder).as_posix())
        for folder, package in PACKAGES.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert ours <= set(wheel_files), "add the missing folders to tool.setuptools.packages"
    assert PurePosixPath("kvproof/py.typed") in wheel_files


def test_the_wheel_holds_only_what_is_reached() -> None:
    """From the program, its commands, the plugins of SGLang and pytest, and what is loaded before SGLang."""
    starts = ["kvproof", "kvproof.__main__", *(entry.module for entry in distribution("kvproof").entry_points)]
    starts += [f"kvproof.conformance.cli.commands.{command.module}" for command in COMMANDS.values()]
    starts += [module for module in modules() if ".preload." in module]
    assert set(modules()) - reached_from(starts) == set(), "delete what nothing reaches, or move it into tools/"


def test_python_runs_the_package_as_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "kvproof", "list", "faults", "-q"], capture_output=True, text=True)
    assert done.returncode == 0 and "F22862b" in done.stdout.split(), done.stderr
