"""Brings a column into a row of the table in one pass. `build.py` compiles it with numba."""

from __future__ import annotations

from kvproof.conformance.compiled.layout import Array


def fill_row(values: Array, flags: Array, valid: Array, first: int, nothing: int, row: Array) -> None:
    """Values, or flags where there are no values, from place `first` on; `nothing` where the bit of `valid` is not set.

    Flags and `valid` are bits, as Arrow keeps them; without `valid` all are there. Where the bits begin with a byte, eight
    events are filled at once: a loop over eight without a branch becomes a few vector instructions.
    """
    length = row.shape[0]
    at_once = length >> 3 if first & 7 == 0 and valid.shape[0] > 0 else 0
    begin = first >> 3
    if flags.shape[0] > 0:
        for group in range(at_once):
            bits, ones = valid[begin + group], flags[begin + group]
            for n in range(8):
                row[8 * group + n] = (ones >> n) & 1 if (bits >> n) & 1 else nothing
    else:
        for group in range(at_once):
            bits = valid[begin + group]
            for n in range(8):
                row[8 * group + n] = values[first + 8 * group + n] if (bits >> n) & 1 else nothing
    for n in range(8 * at_once, length):
        at = first + n
        if valid.shape[0] > 0 and (valid[at >> 3] >> (at & 7)) & 1 == 0:
            row[n] = nothing
        elif flags.shape[0] > 0:
            row[n] = (flags[at >> 3] >> (at & 7)) & 1
        else:
            row[n] = values[at]
