"""The demo is a promise of the readme: it must keep working."""

import os
from pathlib import Path

import pytest
from command_line import PROGRAM, completed
from repository import ROOT


@pytest.mark.slow
def test_the_demo_ends_as_it_says(tmp_path: Path) -> None:
    environment = {**os.environ, "KVPROOF": PROGRAM, "OUT": str(tmp_path)}
    demo = completed(["bash", ROOT / "examples" / "demo.sh"], env=environment)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "All six steps ended as they should" in demo.stdout
    assert "F22862b" in demo.stdout
