"""Files of data that may come from a stranger: read up to a bound, as JSON and nothing else, whatever they hold.

What a trace is has its own readers, which read piece by piece (`json_lines.py`, `columnar.py`). These are the files that are read
as a whole: schedules, states of campaigns and replays, what a folder of traces expects. docs/security.md lists all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from kvproof.conformance.errors import UserError

SMALL = 2**24
"""Bytes of a file that people write, or that one run leaves: a schedule, a list of names."""
LARGE = 2**28
"""Bytes of a state that is gone on from: that of a replay with ten million pages in use."""
WRONG_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What is raised where data is not as kvproof writes it: whoever takes it apart answers these with one sentence."""
_FITS = 2**63


def read_text(path: Path, most: int) -> str:
    """Raises OSError, UnicodeDecodeError (a ValueError), and UserError for a file that is larger than `most` bytes."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UserError(f"{path}: larger than {most >> 20} MiB: kvproof writes none so large")
    return data.decode("utf-8")


def parsed(text: str) -> Any:
    """JSON. Raises ValueError, also for what is nested too deep, and for NaN and Infinity, which JSON has not."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def whole_number(value: Any) -> int:
    """The number, unchanged. Raises ValueError for anything else, and for one that does not fit 64 bits."""
    if type(value) is not int or not -_FITS <= value < _FITS:
        raise ValueError(f"{_short(value)} is not a whole number of 64 bits")
    return value


def count(value: Any) -> int:
    """A whole number that is not negative. Raises ValueError for anything else."""
    if whole_number(value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def seconds(value: Any) -> float:
    """A time that is neither negative nor endless. Raises ValueError for anything else."""
    if type(value) not in (int, float) or not 0 <= value < _FITS:  # so is neither NaN nor infinity
        raise ValueError(f"{_short(value)} is not a time in seconds")
    return float(value)


def text(value: Any) -> str:
    """The text, unchanged. Raises ValueError for anything else."""
    if type(value) is not str:
        raise ValueError(f"{_short(value)} is not a text")
    return value


def wrong_shape(error: BaseException) -> str:
    """What was wrong, in one line and not at length: the error may quote the data."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _short(value: Any) -> str:
    return f"{value!r:.60}"
