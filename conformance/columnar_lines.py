"""Lines of events to columns at once, without an object for each event: four times as fast as one by one.

Arrow reads JSON its own way, so only lines are taken here of which that way and that of `spec/trace.py` are known to be the
same: what has a null, an escape, an unknown field, a number of another form or range, or two records in a line, is left
to those who read record by record, and who say what is wrong with it.
"""

from __future__ import annotations

import functools
import importlib
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

GROUPS = {"params": "param", "after": "after", "terms": "terms", "window_terms": "window_terms"}
"""Groups of fields, and what their columns begin with."""
ALL_OR_NONE = ("terms", "window_terms")
NULL = re.compile(rb"[:\[,]\s*null")


class PlainLines:
    """Makes record batches of lines. Remembers which fields a trace has: to look for all of them takes half as long again."""

    def __init__(self) -> None:
        self._seen: Any = None
        """The fields that were there so far; None: nothing is known."""

    def batch(self, lines: bytes) -> Any:
        """The record batch of whole lines (`pyarrow.RecordBatch`), if all are events and plain; else None.

        The same batch as that of the events read one by one; whether their seqs follow each other is left to the caller.
        """
        # An escape may be one that only some readers take; a null is not the same as what is absent.
        if b"\\" in lines or (b"null" in lines and NULL.search(lines)) or not _one_object_a_line(lines):
            return None
        found = None if self._seen is None else _parsed(lines, self._seen)
        if found is None:
            found = _parsed(lines, _fields())
            if found is None:
                return None
            self._seen = _with_values(found, self._seen)
        try:
            return _in_columns(found)
        except (pyarrow().ArrowException, ValueError, OverflowError):
            return None


def _one_object_a_line(lines: bytes) -> bool:
    """No line is empty or begins within an object. With as many objects as lines, each line is one."""
    import numpy as np

    text = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if not len(ends) or ends[-1] != len(text) - 1 or ends[0] == 0:
        return False
    return text[0] == ord("{") and bool((text[ends - 1] == ord("}")).all() and (text[ends[:-1] + 1] == ord("{")).all())


def _parsed(lines: bytes, fields: Any) -> Any:
    """The lines as Arrow reads them; None if that is not one object a line with these fields only."""
    pa, read_json = pyarrow(), importlib.import_module("pyarrow.json")
    try:
        lines.decode()
        table = read_json.read_json(
            pa.BufferReader(lines),
            read_options=read_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=read_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="error"),
        )
    except (pa.ArrowException, ValueError):
        return None
    if len(table) != lines.count(b"\n"):
        return None
    return table.combine_chunks().to_batches()[0]


def _with_values(found: Any, seen: Any) -> Any:
    """The fields that have a value in these lines or were seen before, in their order."""
    pa = pyarrow()

    def is_there(field: Any, values: Any, before: Any) -> bool:
        return values.null_count < len(values) or (before is not None and field.name in before)

    kept = []
    for field in found.schema:
        values = found[field.name]
        if not is_there(field, values, None if seen is None else seen.names):
            continue
        if pa.types.is_struct(field.type):
            before = (
                None if seen is None or field.name not in seen.names else [f.name for f in seen.field(field.name).type]
            )
            pairs = zip(field.type, values.flatten(), strict=True)
            field = pa.field(field.name, pa.struct([inner for inner, v in pairs if is_there(inner, v, before)]))
        kept.append(field)
    return pa.schema(kept)


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
    there = set(found.schema.names)
    if not {"record", "seq", "action"} <= there:
        raise _NotPlain
    if not pc.all(pc.equal(found["record"], "event"), skip_nulls=False, min_count=1).as_py():
        raise _NotPlain
    codes = pc.index_in(found["action"], pa.array(ACTIONS))
    if codes.null_count or found["seq"].null_count:
        raise _NotPlain
    arrays = {
        "seq": _within(found["seq"], 0, LARGEST_WIDE_NUMBER),
        "action": pa.DictionaryArray.from_arrays(codes.cast(pa.int8()), list(ACTIONS)),
    }
    for name in NAMES:
        if name in there:
            arrays[name] = found[name].dictionary_encode()
    for name in (*WIDE_NUMBERS, "row"):
        if name in there:
            wide = name in WIDE_NUMBERS
            arrays[name] = (
                _within(found[name], -LARGEST_WIDE_NUMBER, LARGEST_WIDE_NUMBER) if wide else _number(found[name])
            )
    for group, prefix in GROUPS.items():
        if group not in there:
            continue
        if group in ALL_OR_NONE and [field.name for field in found[group].type] != list(TERMS):
            raise _NotPlain
        for field, values in zip(found[group].type, found[group].flatten(), strict=True):
            if group in ALL_OR_NONE and values.null_count != found[group].null_count:
                raise _NotPlain
            arrays[f"{prefix}_{field.name}"] = values if pa.types.is_boolean(field.type) else _number(values)
    for name in (*PAGE_LISTS, *PAGE_LISTS_OR_NULL):
        if name in there:
            arrays[name] = _in_runs(found[name], schema().field(name))
    return pa.record_batch([_or_nothing(arrays, field, len(found)) for field in schema()], schema=schema())


def _or_nothing(arrays: dict[str, Any], field: Any, length: int) -> Any:
    """The column; where no line has such a field it is null, or lists no page."""
    pa = pyarrow()
    if field.name in arrays:
        return arrays[field.name]
    if field.nullable:
        return pa.nulls(length, field.type)
    return pa.ListArray.from_arrays(
        pa.array([0] * (length + 1), pa.int32()), pa.array([], field.type.value_type), field.type
    )


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
