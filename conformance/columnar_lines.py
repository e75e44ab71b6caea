"""Lines of events to columns at once, without an object for each event: four times as fast as one by one.

Arrow reads JSON its own way, so only lines are taken here of which that way and that of `spec/trace.py` are known to be the
same: what has a null, an escape, an unknown field, a number of another form or range, or two records in a line, is left
to those who read record by record, and who say what is wrong with it.
"""

from __future__ import annotations

import functools
import importlib
import io
import re
from typing import Any

from .columnar_events import MOST_PAGES
from .columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAG_PARAMS,
    FLAGS_AFTER,
    LARGEST_NUMBER,
    LARGEST_WIDE_NUMBER,
    NAMES,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    TERMS,
    WIDE_NUMBERS,
    pyarrow,
    schema,
)

NULL = re.compile(rb"[:\[,]\s*null")


def batch_of_lines(lines: bytes) -> Any:
    """The record batch of whole lines (`pyarrow.RecordBatch`), if all are events and plain; else None.

    The same batch as that of the events read one by one; whether their seqs follow each other is left to the caller.
    """
    # An escape may be one that only some readers take; a null is not the same as what is absent.
    if b"\\" in lines or (b"null" in lines and NULL.search(lines)) or not _one_object_a_line(lines):
        return None
    pa, read_json = pyarrow(), importlib.import_module("pyarrow.json")
    try:
        lines.decode()
        table = read_json.read_json(
            io.BytesIO(lines),
            read_options=read_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=read_json.ParseOptions(explicit_schema=_fields(), unexpected_field_behavior="error"),
        )
        if len(table) != lines.count(b"\n"):
            return None
        return _in_columns(table.combine_chunks().to_batches()[0])
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _one_object_a_line(lines: bytes) -> bool:
    """No line is empty or begins within an object. With as many objects as lines, each line is one."""
    inner = lines.count(b"\n") - 1
    return lines.startswith(b"{") and lines.endswith(b"}\n") and lines.count(b"}\n{") == inner


@functools.cache
def _fields() -> Any:
    """The fields of an event that have columns, as they stand in a line."""
    pa = pyarrow()
    number, flag, pages = pa.int64(), pa.bool_(), pa.list_(pa.int64())

    def group(flags: tuple[str, ...], numbers: tuple[str, ...]) -> Any:
        return pa.struct([*((name, flag) for name in flags), *((name, number) for name in numbers)])

    return pa.schema(
        [
            ("record", pa.utf8()),
            ("seq", number),
            ("action", pa.utf8()),
            *((name, pa.utf8()) for name in NAMES),
            *((name, number) for name in (*WIDE_NUMBERS, "row")),
            ("params", group(FLAG_PARAMS, NUMBER_PARAMS)),
            ("after", group(FLAGS_AFTER, NUMBERS_AFTER)),
            *((name, group((), TERMS)) for name in ("terms", "window_terms")),
            *((name, pages) for name in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL)),
        ]
    )


class _NotPlain(ValueError):
    """An event that does not fit the columns, or that is none."""


def _in_columns(found: Any) -> Any:
    """The columns of docs/columnar.md from the fields of lines. Raises ValueError where an event does not fit them."""
    pa, pc = pyarrow(), importlib.import_module("pyarrow.compute")
    if not pc.all(pc.equal(found["record"], "event"), skip_nulls=False, min_count=1).as_py():
        raise _NotPlain
    codes = pc.index_in(found["action"], pa.array(ACTIONS))
    if codes.null_count:
        raise _NotPlain
    arrays = {
        "seq": _within(found["seq"], 0, LARGEST_WIDE_NUMBER),
        "action": pa.DictionaryArray.from_arrays(codes.cast(pa.int8()), list(ACTIONS)),
        **{name: found[name].dictionary_encode() for name in NAMES},
        **{name: _within(found[name], -LARGEST_WIDE_NUMBER, LARGEST_WIDE_NUMBER) for name in WIDE_NUMBERS},
        "row": _number(found["row"]),
        "verbatim": pa.nulls(len(found), pa.utf8()),
    }
    if arrays["seq"].null_count:
        raise _NotPlain
    for group, prefix in (("params", "param"), ("after", "after"), ("terms", "terms"), ("window_terms", "window_terms")):
        for field, values in zip(found[group].type, found[group].flatten(), strict=True):
            if group in ("terms", "window_terms") and values.null_count != found[group].null_count:
                raise _NotPlain  # terms have all their fields
            arrays[f"{prefix}_{field.name}"] = values if pa.types.is_boolean(field.type) else _number(values)
    for name in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
        arrays[name] = _in_runs(found[name], schema().field(name))
    return pa.record_batch([arrays[name] for name in schema().names], schema=schema())


def _within(values: Any, least: int, most: int) -> Any:
    pc = importlib.import_module("pyarrow.compute")
    if values.null_count < len(values):
        found = pc.min_max(values).as_py()
        if found["min"] < least or found["max"] > most:
            raise _NotPlain
    return values


def _number(values: Any) -> Any:
    return _within(values, -LARGEST_NUMBER, LARGEST_NUMBER).cast(pyarrow().int32())


def _in_runs(lists: Any, field: Any) -> Any:
    """Page lists as runs: ascending neighbours are one, and each list begins a new one."""
    import numpy as np

    pa = pyarrow()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    pages = _within(lists.values, ABSENT + 1, LARGEST_NUMBER).to_numpy()
    if (np.diff(offsets) > MOST_PAGES).any():
        raise _NotPlain
    begins = np.diff(pages, prepend=ABSENT - 1) != 1
    begins[offsets[:-1][offsets[:-1] < offsets[1:]]] = True
    at = np.flatnonzero(begins)
    runs_before = np.searchsorted(at, offsets)
    inner = pa.StructArray.from_arrays(
        [pa.array(pages[at], pa.int32()), pa.array(np.diff(at, append=len(pages)), pa.int32())],
        fields=list(field.type.value_type),
    )
    absent = lists.is_null() if field.nullable else None
    return pa.ListArray.from_arrays(pa.array(runs_before, pa.int32()), inner, field.type, mask=absent)
