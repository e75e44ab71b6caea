"""Scans lines of events straight into the arrays that the loop reads: one pass over the bytes, no object on the way.

It takes only lines as a recorder writes them, and only those that every reader reads alike: an object a line, known fields, each
once, plain integers and flags, names without escapes. It stops before the first line that is anything else, which is left to
those who read record by record and say what is wrong with it. Fields may stand in any order, spaces between them.

These functions are compiled as those of `book.py` are. They know JSON and no field: what a key means stands in `keys`, which is
made from the schema (`lines.py`). Each line ends with a newline, which no loop over bytes passes by.
"""

from __future__ import annotations

from kvproof.conformance.compiled.scan_layout import (
    ABSENT,
    ACTION,
    BEFORE_THE_FIRST,
    IS_FLAG,
    IS_GROUP,
    IS_LIST,
    IS_NAME,
    IS_NUMBER,
    IS_SEQ,
    IS_STEP,
    IS_WORD,
    KEY_GROUP,
    KEY_KIND,
    KEY_LENGTH,
    KEY_NEEDED,
    KEY_NULLABLE,
    KEY_PLACE,
    KEY_ROW,
    KEY_WORDS,
    LARGEST_NUMBER,
    MOST_DIGITS,
    NAME_LENGTH,
    NAME_ROLE,
    NAME_START,
    NONE,
    OF_ACTION,
    OF_EVENT,
    SCANNED_EVENTS,
    SCANNED_LONGEST,
    SCANNED_NAMES,
    SCANNED_RUNS,
    SCANNED_SEQ,
    SCANNED_TO,
    Array,
    KeyArrays,
    ScannedArrays,
)


def skip_spaces(text: Array, at: int) -> int:
    while text[at] == 32 or text[at] == 9 or text[at] == 13:
        at += 1
    return at


def mixed_text(text: Array, at: int, seed: int) -> tuple[int, int]:
    """The hash of the characters up to the quote or to what ends no plain string, and where that stands."""
    mixed = int(seed)
    byte = int(text[at])
    while byte != 34 and byte != 92 and byte >= 32:
        mixed = (mixed * 31 + byte) & 0xFFFFFFFF
        at += 1
        byte = int(text[at])
    return mixed, at


def same_text(text: Array, at: int, other: Array, begin: int, length: int) -> bool:
    for n in range(length):  # noqa: SIM110
        if text[at + n] != other[begin + n]:
            return False
    return True


def slot_of(mixed: int, slots: int) -> int:
    """Where to look first. Names are much alike ("r17", "r18"), so neighbours have to be spread."""
    return (((mixed * 2654435761) & 0xFFFFFFFF) >> 11) & (slots - 1)


def key_at(text: Array, at: int, group: int, keys: KeyArrays) -> tuple[int, int]:
    """The number of a key of a group, and where its quote stands; -1: there is no such key."""
    mixed, end = mixed_text(text, at, group)
    if text[end] != 34:
        return -1, end
    place = slot_of(mixed, keys.slots.shape[0])
    while keys.slots[place] != NONE:
        key = int(keys.slots[place])
        fits = keys.keys[key, KEY_LENGTH] == end - at and keys.keys[key, KEY_GROUP] == group
        if fits and same_text(text, at, keys.spelled[key], 0, end - at):
            return key, end
        place = (place + 1) & (keys.slots.shape[0] - 1)
    return -1, end


def number_at(text: Array, at: int) -> tuple[int, int]:
    """An integer as JSON writes it, and where it ends; -1: it is none, or a longer one than is read here."""
    negative = text[at] == 45
    if negative:
        at += 1
    begin, value = at, 0
    while text[at] >= 48 and text[at] <= 57:
        value = value * 10 + int(text[at]) - 48
        at += 1
        if at - begin > MOST_DIGITS:
            return 0, -1
    zero_first = text[begin] == 48 and (at - begin > 1 or negative)
    if at == begin or zero_first:
        return 0, -1
    return -value if negative else value, at


def flag_at(text: Array, at: int) -> tuple[int, int]:
    if text[at] == 116 and text[at + 1] == 114 and text[at + 2] == 117 and text[at + 3] == 101:
        return 1, at + 4
    if text[at] == 102 and text[at + 1] == 97 and text[at + 2] == 108 and text[at + 3] == 115 and text[at + 4] == 101:
        return 0, at + 5
    return 0, -1


def is_null(text: Array, at: int) -> bool:
    return bool(text[at] == 110 and text[at + 1] == 117 and text[at + 2] == 108 and text[at + 3] == 108)


def name_at(text: Array, at: int, role: int, scanned: ScannedArrays, counts: Array) -> tuple[int, int]:
    """The number of a name among those of these lines, and where its quote stands; -1: it is no plain string."""
    mixed, end = mixed_text(text, at, role)
    if text[end] != 34:
        return 0, -1
    slots, names = scanned.slots, scanned.names
    place = slot_of(mixed, slots.shape[0])
    while slots[place] != 0:
        known = int(slots[place]) - 1
        fits = names[known, NAME_LENGTH] == end - at and names[known, NAME_ROLE] == role
        if fits and same_text(text, at, text, int(names[known, NAME_START]), end - at):
            return known, end
        place = (place + 1) & (slots.shape[0] - 1)
    known = int(counts[SCANNED_NAMES])
    names[known, NAME_START], names[known, NAME_LENGTH], names[known, NAME_ROLE] = at, end - at, role
    slots[place] = known + 1
    counts[SCANNED_NAMES] = known + 1
    return known, end


def list_at(text: Array, at: int, runs: Array, counts: Array) -> int:
    """Appends the page ids of a list as runs; where the list ends, -1: it is no list of page ids."""
    if text[at] != 91:
        return -1
    at = skip_spaces(text, at + 1)
    if text[at] == 93:
        return at + 1
    run = int(counts[SCANNED_RUNS]) - 1
    following, length = ABSENT, 0
    while True:
        page, at = number_at(text, at)
        if at < 0 or page > LARGEST_NUMBER or page < -LARGEST_NUMBER:
            return -1
        if length > 0 and page == following:
            runs[run, 1] += 1
        else:
            run += 1
            runs[run, 0], runs[run, 1] = page, 1
        following = page + 1
        length += 1
        at = skip_spaces(text, at)
        if text[at] == 93:
            counts[SCANNED_RUNS] = run + 1
            counts[SCANNED_LONGEST] = max(counts[SCANNED_LONGEST], length)
            return at + 1
        if text[at] != 44:
            return -1
        at = skip_spaces(text, at + 1)


def value_at(text: Array, at: int, key: int, event: int, keys: KeyArrays, scanned: ScannedArrays, counts: Array) -> int:
    """Puts the value of a key where it belongs; where it ends, -1: it is not what belongs there."""
    kind, place = keys.keys[key, KEY_KIND], keys.keys[key, KEY_PLACE]
    if kind == IS_NUMBER:
        number, at = number_at(text, at)
        if number > LARGEST_NUMBER or number < -LARGEST_NUMBER:
            return -1
        scanned.table[place, event] = number
        return at
    if kind == IS_FLAG:
        flag, at = flag_at(text, at)
        scanned.table[place, event] = flag
        return at
    if kind == IS_LIST:
        scanned.begins[place, event] = counts[SCANNED_RUNS]
        at = list_at(text, at, scanned.runs, counts)
        scanned.ends[place, event] = counts[SCANNED_RUNS]
        if keys.keys[key, KEY_ROW] != NONE:
            scanned.table[keys.keys[key, KEY_ROW], event] = 0
        return at
    if kind in (IS_NAME, IS_WORD):
        if text[at] != 34:
            return -1
        if kind == IS_NAME:
            found, at = name_at(text, at + 1, place, scanned, counts)
            scanned.table[place, event] = found
        else:
            found, at = key_at(text, at + 1, place, keys)
            if found < 0:
                return -1
            if place == OF_ACTION:
                scanned.table[ACTION, event] = keys.keys[found, KEY_PLACE]
        return at + 1 if at >= 0 else -1
    number, at = number_at(text, at)
    if kind == IS_SEQ:
        if event == 0:
            counts[SCANNED_SEQ] = number
        if number < 0 or number != counts[SCANNED_SEQ] + event:
            return -1
    elif kind == IS_STEP:
        if number == ABSENT:
            return -1
        scanned.steps[event] = number
    return at


def key_follows(words: Array, at: int, key: int, keys: KeyArrays) -> bool:
    """Whether the text goes on with this key, its quotes and its colon; eight characters at a time."""
    for n in range(keys.keys[key, KEY_WORDS]):  # noqa: SIM110
        if (words[at + 8 * n] ^ keys.words[key, n]) & keys.masks[key, n] != 0:
            return False
    return True


def line_at(
    text: Array, words: Array, at: int, event: int, keys: KeyArrays, scanned: ScannedArrays, counts: Array
) -> int:
    """Reads one event; where the next line begins, -1: this one is not plain."""
    group, needed, needed_in_group = OF_EVENT, 0, 0
    before = BEFORE_THE_FIRST
    expected = scanned.expected[0]
    at = skip_spaces(text, at)
    if text[at] != 123:
        return -1
    at = skip_spaces(text, at + 1)
    while True:
        # Recorders write the keys of an action in one order: the key that came the last time most often comes again.
        key = int(expected[before])
        if keys.keys[key, KEY_GROUP] == group and key_follows(words, at, key, keys):
            at += keys.keys[key, KEY_LENGTH] + 3
        else:
            if text[at] != 34:
                return -1
            key, at = key_at(text, at + 1, group, keys)
            if key < 0:
                return -1
            at = skip_spaces(text, at + 1)
            if text[at] != 58:
                return -1
            at += 1
            expected[before] = key
        before = key + 1
        at = skip_spaces(text, at)
        if scanned.met[key] == event + 1:
            return -1
        scanned.met[key] = event + 1
        if group == OF_EVENT:
            needed += keys.keys[key, KEY_NEEDED]
        else:
            needed_in_group += keys.keys[key, KEY_NEEDED]
        kind = keys.keys[key, KEY_KIND]
        if keys.keys[key, KEY_NULLABLE] and is_null(text, at):
            at = skip_spaces(text, at + 4)
        elif kind == IS_GROUP:
            if text[at] != 123:
                return -1
            group, needed_in_group = int(keys.keys[key, KEY_PLACE]), 0
            at = skip_spaces(text, at + 1)
            if text[at] != 125:
                continue
        else:
            at = value_at(text, at, key, event, keys, scanned, counts)
            if at < 0:
                return -1
            if kind == IS_WORD and keys.keys[key, KEY_PLACE] == OF_ACTION:
                expected = scanned.expected[scanned.table[ACTION, event] + 1]
            at = skip_spaces(text, at)
        if text[at] == 125 and group != OF_EVENT:
            if needed_in_group != keys.wanted[group]:
                return -1
            group = OF_EVENT
            at = skip_spaces(text, at + 1)
        if text[at] == 44:
            at = skip_spaces(text, at + 1)
        elif text[at] == 125 and group == OF_EVENT:
            at = skip_spaces(text, at + 1)
            return at + 1 if text[at] == 10 and needed == keys.wanted[OF_EVENT] else -1
        else:
            return -1


def scan_lines(
    text: Array,
    words: Array,
    at: int,
    end: int,
    longest: int,
    keys: KeyArrays,
    scanned: ScannedArrays,
    counts: Array,
) -> None:
    """Reads plain lines from a place on, up to the first that is not plain or longer than a line may be."""
    event = 0
    scanned.starts[0] = at
    while at < end:
        names, runs = counts[SCANNED_NAMES], counts[SCANNED_RUNS]
        then = line_at(text, words, at, event, keys, scanned, counts)
        if then < 0 or then - at > longest:
            counts[SCANNED_NAMES], counts[SCANNED_RUNS] = names, runs
            break
        at = then
        event += 1
        scanned.starts[event] = at
    counts[SCANNED_EVENTS], counts[SCANNED_TO] = event, at
