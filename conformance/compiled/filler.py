"""Brings the columns of a record batch into the arrays of the loop, all in one call. `build.py` compiles it with numba.

Columns are read where Arrow has them, by address: whoever calls has had the batch validated, and holds it. Flags are bits, and so
is which values are there (`valid`: 0 where all are). Where the bits begin with a byte, eight events are filled at once: a loop
over eight without a branch becomes a few vector instructions.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.addresses import byte_at, number_at, wide_number_at
from kvproof.conformance.compiled.layout import Array


def bits_at(bits: int, place: int) -> int:
    """Eight of them, from a place that is a multiple of eight on; all are set where there are none."""
    return byte_at(bits, place >> 3) if bits != 0 else 255


def is_set(bits: int, place: int) -> bool:
    return (bits_at(bits, place) >> (place & 7)) & 1 == 1


def fill_numbers(values: int, valid: int, first: int, nothing: int, row: Array, events: int) -> None:
    if valid == 0:
        for n in range(events):
            row[n] = number_at(values, first + n)
        return
    at_once = events >> 3 if first & 7 == 0 else 0
    for group in range(at_once):
        bits = bits_at(valid, first + 8 * group)
        for n in range(8):
            row[8 * group + n] = number_at(values, first + 8 * group + n) if (bits >> n) & 1 else nothing
    for n in range(8 * at_once, events):
        row[n] = number_at(values, first + n) if is_set(valid, first + n) else nothing


def fill_flags(values: int, valid: int, first: int, nothing: int, row: Array, events: int) -> None:
    at_once = events >> 3 if first & 7 == 0 else 0
    for group in range(at_once):
        ones, bits = bits_at(values, first + 8 * group), bits_at(valid, first + 8 * group)
        for n in range(8):
            row[8 * group + n] = (ones >> n) & 1 if (bits >> n) & 1 else nothing
    for n in range(8 * at_once, events):
        row[n] = int(is_set(values, first + n)) if is_set(valid, first + n) else nothing


def fill_steps(values: int, valid: int, first: int, steps: Array, odd: Array, events: int) -> bool:
    """Whether a step is the number that stands for none. Such an event is marked as odd."""
    any_odd = False
    for n in range(events):
        there = is_set(valid, first + n)
        steps[n] = wide_number_at(values, first + n) if there else at.ABSENT
        if there and steps[n] == at.ABSENT:
            odd[n] = 1
            any_odd = True
    return any_odd


def fill_lists(lists: Array, events: int, begins: Array, ends: Array, runs: Array) -> int:
    """The runs of all page lists, one list after the other, and where those of each event are; how many pages they name.

    `lists`: int64[lists, 6], of each its row, the addresses of offsets, starts and counts, the place of its first event, and how
    many runs it has.
    """
    size, pages = 0, 0
    for n in range(lists.shape[0]):
        row, offsets, starts, counts, first, total = lists[n]
        for event in range(events):
            begins[row, event] = number_at(offsets, first + event) + size
            ends[row, event] = number_at(offsets, first + event + 1) + size
        for run in range(total):
            runs[size + run, 0] = number_at(starts, run)
            runs[size + run, 1] = number_at(counts, run)
            pages += number_at(counts, run)
        size += total
    return pages


def fill_columns(
    columns: Array, lists: Array, events: int, table: Array, steps: Array, begins: Array, ends: Array, runs: Array
) -> tuple[bool, int]:
    """Fill the arrays of a batch; whether an event was marked as odd, and how many pages its lists name.

    `columns`: int64[columns, 6], of each its kind, its row, the addresses of its values and of `valid` (0: all are there), the
    place of its first event in these, and what stands in the row where there is no value. `lists` as in `fill_lists`.
    """
    any_odd = False
    for n in range(columns.shape[0]):
        kind, row, values, valid, first, nothing = columns[n]
        if kind == at.NUMBER_COLUMN:
            fill_numbers(values, valid, first, nothing, table[row], events)
        elif kind == at.FLAG_COLUMN:
            fill_flags(values, valid, first, nothing, table[row], events)
        else:
            any_odd = fill_steps(values, valid, first, steps, table[row], events)
    return any_odd, fill_lists(lists, events, begins, ends, runs)
