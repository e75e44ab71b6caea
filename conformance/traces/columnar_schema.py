"""The columns of a columnar trace: one row an event, derived from `spec/trace.py`. The page is docs/columnar.md.

What an event may leave out is null: absent and false differ here as they do in JSONL. Page lists are runs: ascending
neighbours are one (start, count), in the order of the list, so nothing of it is lost. The table is closed. An event
that does not fit it (an unknown parameter, a parameter that is null, a number past 32 bits) stands in `verbatim` as the
JSON it would have as a line, and its other columns but `seq` and `action` are null or empty.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from kvproof.conformance.errors import UserError
from kvproof.spec.trace import EventName, Observed, Terms

if TYPE_CHECKING:
    import numpy as np

INSTALL = "pip install 'kvproof[scale]'"

ACTIONS: tuple[str, ...] = get_args(EventName)
"""The dictionary of column `action` in every block, so an index into it means the same in all of them."""

FLAG_PARAMS = ("admitted", "too_long", "logprob", "last", "inserted", "busy", "own_check_ok", "marked_full")
NUMBER_PARAMS = (
    "origin_len",
    "fill_len",
    "seq_len",
    "dup_len",
    "key_len",
    "tokens",
    "pre_len",
    "finished_len",
    "prefix_id",
    "idle_passes",
)
FLAGS_AFTER = tuple(name for name, field in Observed.model_fields.items() if bool in get_args(field.annotation))
NUMBERS_AFTER = tuple(name for name in Observed.model_fields if name not in FLAGS_AFTER)
TERMS = tuple(Terms.model_fields)

NAMES = ("session", "turn")
WIDE_NUMBERS = ("cause", "step")
FLAGS = (*(f"param_{name}" for name in FLAG_PARAMS), *(f"after_{name}" for name in FLAGS_AFTER))
NUMBERS = (
    "row",
    *(f"param_{name}" for name in NUMBER_PARAMS),
    *(f"after_{name}" for name in NUMBERS_AFTER),
    *(f"terms_{name}" for name in TERMS),
    *(f"window_terms_{name}" for name in TERMS),
)
PAGE_LISTS = ("alloc", "free", "window_alloc", "window_free")
PAGE_LISTS_OR_NULL = ("shared", "free_list", "window_free_list")

ABSENT = -(2**31)
"""Stands for null where numbers are wanted as a plain int32 array; no column holds it as a value."""
LARGEST_NUMBER = 2**31 - 1
LARGEST_WIDE_NUMBER = 2**63 - 1


def pyarrow() -> ModuleType:
    """pyarrow, which only columnar traces need; without it the user learns what to install."""
    try:
        pyarrow = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.ipc")
    except ImportError as error:
        raise UserError(f"columnar traces need pyarrow, which is not installed: {INSTALL}") from error
    return pyarrow


@functools.cache
def schema() -> Any:
    """The Arrow schema of one block of events (`pyarrow.Schema`)."""
    pa = pyarrow()
    name = pa.dictionary(pa.int32(), pa.utf8())
    runs = pa.list_(
        pa.field("run", pa.struct([pa.field("start", pa.int32(), False), pa.field("count", pa.int32(), False)]), False)
    )
    return pa.schema(
        [
            pa.field("seq", pa.int64(), False),
            pa.field("action", pa.dictionary(pa.int8(), pa.utf8()), False),
            *(pa.field(column, name) for column in NAMES),
            *(pa.field(column, pa.int64()) for column in WIDE_NUMBERS),
            *(pa.field(column, pa.bool_()) for column in FLAGS),
            *(pa.field(column, pa.int32()) for column in NUMBERS),
            *(pa.field(column, runs, False) for column in PAGE_LISTS),
            *(pa.field(column, runs) for column in PAGE_LISTS_OR_NULL),
            pa.field("verbatim", pa.utf8()),
        ]
    )


@functools.lru_cache(maxsize=64)
def schema_of(columns: frozenset[str]) -> Any:
    """The part of the schema that some columns are."""
    return pyarrow().schema([field for field in schema() if field.name in columns])


def may_be_missing(field: Any) -> bool:
    """Whether a block may leave a column out: all null, or seqs that run on from the first without a gap."""
    return field.nullable or field.name == "seq"


def complete(batch: Any) -> Any:
    """The batch with all columns, in their order. A writer leaves out what is null in a whole block; a trace of an older
    kvproof has fewer columns for the same reason: nothing of the others was in it.
    """
    stored = dict(zip(batch.schema.names, batch.columns, strict=True))
    nulls = pyarrow().nulls
    columns = [stored[f.name] if f.name in stored else nulls(len(batch), f.type) for f in schema()]
    return pyarrow().record_batch(columns, schema=schema())


def numbers(batch: Any, column: str) -> np.ndarray[Any, Any]:
    """A column of numbers or flags as a plain array, one per event: null is ABSENT; a flag is 0 or 1 (int32)."""
    array = batch.column(column)
    if array.type.bit_width == 1:
        array = array.cast(pyarrow().int32())
    return (array.fill_null(ABSENT) if array.null_count else array).to_numpy()


def actions_in(batch: Any) -> dict[str, int]:
    """How many events of each action a batch has."""
    import numpy as np

    counts = np.bincount(batch["action"].indices.to_numpy(), minlength=len(ACTIONS)).tolist()
    return {name: times for name, times in zip(ACTIONS, counts, strict=True) if times}


def runs(batch: Any, column: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A page list column as (offsets[events + 1], starts[runs], counts[runs]), int32: event i owns the runs from
    offsets[i] to offsets[i + 1]. A null list has no runs; `batch.column(column).is_valid()` tells it from an empty one.
    """
    return runs_of(batch.column(column))


def runs_of(lists: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The runs of one column, as `runs` gives them."""
    inner = lists.values
    return lists.offsets.to_numpy(), inner.field(0).to_numpy(), inner.field(1).to_numpy()
