"""Work trees of sglang-jax for the tests, out of the repository that the user names, and a process that records on them."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

REPOSITORY = "KVPROOF_SGLANG_JAX_REPO"
ROOT = Path(__file__).resolve().parents[4]
ENVIRONMENT = ROOT / ".venv-sglang-jax"
RECORD_SCENARIOS = str(ROOT / "tools" / "record_scenarios.py")
PAGE_SIZES = (1, 4, 16)

# The history that the tests look at. A pull request's commit on the main branch is its merge; before it is that one's parent.
COMMITS = {
    "before #1008": "24e196422a318a2473e57f2a105fe5708b425ccf",
    "before #994": "00c60d51d28245abbedc4ef2898373014ac8fa15",  # the commit of #1008: after that one
    "after #994": "5b7150bd1ba409e8d6de554f1a0dd707384970ae",
    "before #1401": "e57fd5fdecac0b3fd966250ee66f3962ae2ce96f",
    "after #1401": "ada34734adb62810abb9d065a2787ba2bddbcbc0",
    "2026-08-21": "cddbf6f1cc33cbdd453bd8f36ff7051cf46ca176",
}
AFTER_1008 = "before #994"


def checked_out(commit: str, folder: Path) -> Path:
    """The sources of one commit as a work tree below `folder`; skips the test where there is no repository."""
    named = os.environ.get(REPOSITORY)
    if not named:
        pytest.skip(f"{REPOSITORY} names no repository of sglang-jax")
    packed = subprocess.run(
        ["git", "-C", named, "archive", COMMITS[commit], "python/sgl_jax"], capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"{named} has no commit {COMMITS[commit]}: {packed.stderr.decode().strip()}")
    tree = folder / COMMITS[commit]
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def run_on(tree: Path, *arguments: str) -> str:
    """Run the environment's Python with this checkout; its output."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {ENVIRONMENT.name}: run `make test-sglang-jax`")
    command = [str(python), "-W", "ignore", *arguments]
    environment = {**os.environ, "KVPROOF_SGLANG_JAX": str(tree), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
