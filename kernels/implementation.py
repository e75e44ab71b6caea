"""Which implementation of a kernel runs: Triton on CUDA tensors, plain torch on others."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch

from kvproof.kernels import reference, reference_allocation, reference_census, reference_trace_ring

Kernels = Literal["allocation", "attention", "census", "store", "trace_ring"]

REFERENCES: dict[Kernels, Any] = {
    "allocation": reference_allocation,
    "attention": reference,
    "census": reference_census,
    "store": reference,
    "trace_ring": reference_trace_ring,
}


def implementation_of(kernels: Kernels, tensor: torch.Tensor) -> Any:
    """The module for the tensor's device."""
    return (_in_triton() if tensor.is_cuda else REFERENCES)[kernels]


@cache
def _in_triton() -> dict[Kernels, Any]:
    """Imported with the first CUDA tensor: a machine without Triton can use everything else."""
    from kvproof.kernels import triton_allocation, triton_attention, triton_census, triton_store, triton_trace_ring

    return {
        "allocation": triton_allocation,
        "attention": triton_attention,
        "census": triton_census,
        "store": triton_store,
        "trace_ring": triton_trace_ring,
    }
