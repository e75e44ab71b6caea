"""Brings a column into a row of the table in one pass; compiled as `scanner.py` is."""

from __future__ import annotations

from kvproof.conformance.compiled.layout import Array


def fill_row(values: Array, flags: Array, valid: Array, first: int, nothing: int, row: Array) -> None:
    """Values, or flags where there are no values, from place `first` on; `nothing` where the bit of `valid` is not set.

    Flags and `valid` are bits, as Arrow keeps them; without `valid` all are there.
    """
    for n in range(row.shape[0]):
        at = first + n
        if valid.shape[0] > 0 and (valid[at >> 3] >> (at & 7)) & 1 == 0:
            row[n] = nothing
        elif flags.shape[0] > 0:
            row[n] = (flags[at >> 3] >> (at & 7)) & 1
        else:
            row[n] = values[at]
