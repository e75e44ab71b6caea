"""These tests need a CUDA device: `make test-gpu`."""

import sys
from pathlib import Path

import pytest
import torch

# What tests/impl makes for the path of a device on the CPU is used here, too.
sys.path.append(str(Path(__file__).parents[1] / "impl"))


@pytest.fixture(autouse=True)
def _device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
