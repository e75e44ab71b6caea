"""Where the kernels of these tests run: on the CUDA device if there is one, else in Triton's interpreter on the CPU.

Triton decides that when it is first imported, and nothing else in this repository imports it without a CUDA device.
"""

import os
import sys

import pytest
import torch

# The tensors of these tests are tiny: threads would only wait for each other.
torch.set_num_threads(1)

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> str:
    """Ask for this in every test that launches a kernel."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.fail("triton was imported before these tests could choose its interpreter: run tests/kernels by itself")
    return "cpu"
