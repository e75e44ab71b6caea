"""Sizes that do not fit, told in one sentence that names both numbers.

Only what the host knows is looked at: shapes, dtypes, devices. Nothing here reads a tensor's values, which would make
the host wait for the device.
"""

from __future__ import annotations

import torch

INDEX_DTYPES = (torch.int32, torch.int64)
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def one_device(**tensors: torch.Tensor) -> None:
    """All tensors lie on one device."""
    (first_name, first), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, but {first_name} is on {first.device}")


def dtype_of(name: str, tensor: torch.Tensor, allowed: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in allowed:
        raise ValueError(f"{name} is {_short(tensor.dtype)}, but must be {' or '.join(map(_short, allowed))}")


def same_dtype(**tensors: torch.Tensor) -> None:
    (first_name, first), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != first.dtype:
            raise ValueError(f"{name} is {_short(tensor.dtype)}, but {first_name} is {_short(first.dtype)}")


def dimensions(name: str, tensor: torch.Tensor, *meanings: str) -> None:
    """The tensor has as many dimensions as there are meanings."""
    if tensor.dim() != len(meanings):
        raise ValueError(f"{name} has {tensor.dim()} dimensions, but needs {len(meanings)}: [{', '.join(meanings)}]")


def length_of(name: str, tensor: torch.Tensor, expected: int, because: str) -> None:
    """The first dimension is `expected` long; `because` says what set that number."""
    if len(tensor) != expected:
        raise ValueError(f"{name} has {len(tensor)} entries, but {because} {expected}")


def index_vectors(expected: int, because: str, **vectors: torch.Tensor) -> None:
    """Each is a contiguous int32 or int64 vector of the expected length."""
    for name, vector in vectors.items():
        dimensions(name, vector, because)
        dtype_of(name, vector, INDEX_DTYPES)
        length_of(name, vector, expected, f"{because} is")
        contiguous_last(name, vector)


def contiguous_last(name: str, tensor: torch.Tensor) -> None:
    """Neighbours of the last dimension are neighbours in memory."""
    if tensor.numel() and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension, but must have 1")


def at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}, but must be at least {least}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
