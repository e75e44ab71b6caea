"""Numbers at an address, as Python reads them. In compiled code other functions take their place (`build.py`)."""

from __future__ import annotations

import ctypes


def byte_at(address: int, place: int) -> int:
    return ctypes.c_uint8.from_address(int(address + place)).value


def number_at(address: int, place: int) -> int:
    """An int32."""
    return ctypes.c_int32.from_address(int(address + 4 * place)).value


def wide_number_at(address: int, place: int) -> int:
    """An int64."""
    return ctypes.c_int64.from_address(int(address + 8 * place)).value
