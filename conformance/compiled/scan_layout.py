"""What stands where in the arrays of the scanner of lines, and what it is told of the schema. As `layout.py` is for the loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvproof.conformance.compiled.layout import ACTION, COLUMNS, LISTS, Array
from kvproof.conformance.traces.columnar_schema import (
    ABSENT,
    ACTIONS,
    FLAG_PARAMS,
    FLAGS_AFTER,
    LARGEST_NUMBER,
    NAMES,
    NUMBER_PARAMS,
    NUMBERS_AFTER,
    PAGE_LISTS,
    PAGE_LISTS_OR_NULL,
    TERMS,
)
from kvproof.spec.trace import Event

__all__ = ["ABSENT", "ACTION", "LARGEST_NUMBER", "Array", "KeyArrays", "ScannedArrays", "key_arrays"]


class KeyArrays(NamedTuple):
    """The keys of an event, and the values of those that have a few words as values."""

    keys: Array
    """int32[keys, 8], see KEY_LENGTH and the following."""
    spelled: Array
    """uint8[keys, longest]: their characters."""
    words: Array
    """int64[keys, 4]: their characters with quotes and colon, eight in a number."""
    masks: Array
    """int64[keys, 4]: which bits of it are theirs."""
    slots: Array
    """int32[power of two]: a hash table of keys, -1 where it is empty."""
    wanted: Array
    """int32[groups]: how many keys that are needed a group has, where it stands at all."""


class ScannedArrays(NamedTuple):
    """What the scanner fills in."""

    table: Array
    """int32[columns, events], as that of the loop, but names are numbered over these lines only."""
    steps: Array
    """int64[events]."""
    begins: Array
    """int32[lists, events], into runs."""
    ends: Array
    """int32[lists, events]."""
    runs: Array
    """int32[runs, 2]."""
    starts: Array
    """int64[events + 1]: where each line begins, and where the next one would."""
    names: Array
    """int64[names, 3] of (where it stands, its length, its column)."""
    slots: Array
    """int32[power of two]: a hash table of names, + 1."""
    met: Array
    """int32[keys]: the last event that has the key, + 1."""
    expected: Array
    """int32[actions + 1, keys + 1]: the key that came behind each the last time, by action; before that is known, first."""


KEY_LENGTH, KEY_GROUP, KEY_KIND, KEY_PLACE, KEY_ROW, KEY_NEEDED, KEY_WORDS, KEY_NULLABLE = range(8)
"""KEY_PLACE: the column, list, group or code that it stands for. KEY_ROW: of a list that may be absent, its column.
KEY_NULLABLE: whether null is as if it did not stand there."""
NAME_START, NAME_LENGTH, NAME_ROLE = range(3)
SCANNED_EVENTS, SCANNED_TO, SCANNED_SEQ, SCANNED_RUNS, SCANNED_NAMES, SCANNED_LONGEST = range(6)
SCANNED_COUNTS = 6

GROUPS = ("", "params", "after", "terms", "window_terms", "action", "record")
"""Objects of an event, the event itself first; then the fields whose values are words, which are looked up as keys are."""
OF_EVENT, OF_PARAMS, OF_AFTER, OF_TERMS, OF_WINDOW_TERMS, OF_ACTION, OF_RECORD = range(7)

IS_NUMBER, IS_FLAG, IS_LIST, IS_NAME, IS_WORD, IS_SEQ, IS_STEP, IS_UNUSED, IS_GROUP = range(9)
"""What a key has as its value. IS_UNUSED: a number that no checker reads."""
NONE = -1
BEFORE_THE_FIRST = 0
"""Row of `expected` for what stands first; that of a key is its number + 1."""
PADDING = bytes(64)
"""Behind the text, so that eight characters can be read from any place in it."""
MOST_DIGITS = 18
"""Of a number: any of them fits 64 bits. A longer one is left to others."""

Key = tuple[int, str, int, int, int, bool]
"""Group, spelling, kind, place, row, whether it is needed."""


def _keys() -> list[Key]:
    """Of what `spec/trace.py` allows, what has a column: all else is not known here, and so not plain."""
    found: list[Key] = [(OF_EVENT, name, IS_NAME, COLUMNS[name], NONE, False) for name in NAMES]
    found += [(OF_EVENT, "row", IS_NUMBER, COLUMNS["row"], NONE, False)]
    found += [(OF_EVENT, name, IS_LIST, LISTS[name], NONE, False) for name in PAGE_LISTS]
    found += [(OF_EVENT, name, IS_LIST, LISTS[name], COLUMNS[name], False) for name in PAGE_LISTS_OR_NULL]
    found += [(OF_EVENT, "step", IS_STEP, NONE, NONE, False), (OF_EVENT, "cause", IS_UNUSED, NONE, NONE, False)]
    found += [(OF_EVENT, "seq", IS_SEQ, NONE, NONE, True)]
    found += [(OF_EVENT, name, IS_WORD, GROUPS.index(name), NONE, True) for name in ("action", "record")]
    found += [(OF_EVENT, name, IS_GROUP, group, NONE, False) for group, name in enumerate(GROUPS[:OF_ACTION]) if name]
    numbers = {OF_PARAMS: ("param", NUMBER_PARAMS), OF_AFTER: ("after", NUMBERS_AFTER)}
    flags = {OF_PARAMS: ("param", FLAG_PARAMS), OF_AFTER: ("after", FLAGS_AFTER)}
    for kind, of_kind in ((IS_NUMBER, numbers), (IS_FLAG, flags)):
        for group, (prefix, names) in of_kind.items():
            found += [(group, name, kind, COLUMNS[f"{prefix}_{name}"], NONE, False) for name in names]
    for group in (OF_TERMS, OF_WINDOW_TERMS):
        found += [(group, name, IS_NUMBER, COLUMNS[f"{GROUPS[group]}_{name}"], NONE, True) for name in TERMS]
    found += [(OF_ACTION, name, IS_WORD, code, NONE, False) for code, name in enumerate(ACTIONS)]
    found += [(OF_RECORD, Event.model_fields["record"].default, IS_WORD, 0, NONE, False)]
    return found


def key_arrays() -> KeyArrays:
    found = _keys()
    spelled = np.zeros((len(found), max(len(name) for _, name, *_ in found)), np.uint8)
    slots = np.full(1 << (4 * len(found)).bit_length(), NONE, np.int32)
    for number, (group, name, *_) in enumerate(found):
        spelled[number, : len(name)] = np.frombuffer(name.encode(), np.uint8)
        place = _slot_of(group, name, len(slots))
        while slots[place] != NONE:
            place = (place + 1) % len(slots)
        slots[place] = number
    texts = [f'"{name}":'.encode() for _, name, *_ in found]
    size = 8 * -(-max(map(len, texts)) // 8)
    words = np.array([np.frombuffer(text.ljust(size, b"\0"), "<i8") for text in texts])
    masks = np.array([np.frombuffer((b"\xff" * len(text)).ljust(size, b"\0"), "<i8") for text in texts])
    keys = [
        (len(name), group, kind, place, row, needed, -(-(len(name) + 3) // 8), group == OF_EVENT and _is_nullable(name))
        for group, name, kind, place, row, needed in found
    ]
    wanted = [sum(needed for group, *_, needed in found if group == of_group) for of_group in range(len(GROUPS))]
    return KeyArrays(np.array(keys, np.int32), spelled, words, masks, slots, np.array(wanted, np.int32))


def _is_nullable(name: str) -> bool:
    return Event.model_fields[name].default is None


def _slot_of(group: int, name: str, slots: int) -> int:
    """Where the scanner looks for a key first."""
    from kvproof.conformance.compiled.scanner import mixed_text, slot_of

    return slot_of(mixed_text(np.frombuffer(f'{name}"'.encode(), np.uint8), 0, group)[0], slots)
