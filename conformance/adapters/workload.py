"""Reads public production workloads: what users asked for, to drive an implementation with.

Two formats, told apart by their content: the Mooncake trace release (JSONL) and the Azure LLM inference trace (CSV).
They hold arrivals, lengths and shared prefixes, no contents, and say nothing about pages: an implementation driven by
one yields the trace to check.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.traces.data_file import parsed

MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
FORMATS = (
    f"Mooncake JSONL (objects with {', '.join(MOONCAKE_FIELDS)})",
    f"Azure CSV (columns {', '.join(AZURE_COLUMNS)})",
)

# Nearly every Mooncake request starts with the same block, a system prompt. One common block is therefore no sign of a
# common conversation.
LEAST_COMMON_BLOCKS = 2

# A workload may come from a stranger: what it asks for has bounds far above any that a server takes.
LONGEST_LINE = 2**22
"""Bytes of a line; a row of a million tokens has a hundredth of that."""
MOST_TOKENS = 2**24
"""Tokens of one input or output."""
MOST_REQUESTS = 2**22
"""Requests that are read into memory unless `limit` says how many."""
LATEST_MS = 2**53
DIGITS = 18
"""Of a number in a CSV file: Python refuses to read very long ones."""

_Lines = Iterable[tuple[int, str]]


@dataclass(frozen=True)
class WorkloadRequest:
    """One request as a server sees it arrive. Lengths are in tokens."""

    arrival_ms: float
    session: str | None
    """The conversation that this request continues or opens; None: an ordinary request."""
    new_tokens: int
    """Input tokens that the conversation did not hold before: all of them for its first turn."""
    output_tokens: int
    prefix_group: str | None
    """Requests of one group begin with the same tokens (a system prompt); None: nothing is known to be shared."""


def read_workload(path: str | Path, *, scale: int = 1, limit: int | None = None) -> list[WorkloadRequest]:
    """The first `limit` requests of a workload file, in file order.

    `scale` divides every token count, rounded up, so that a tiny implementation can run a production workload: the
    shape of the conversations stays, their lengths shrink. Say so wherever results are shown.
    """
    path = Path(path)
    if scale < 1:
        raise UserError(f"scale {scale}: token counts are divided by it, so it must be 1 or more")
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit}: nothing would be read; give 1 or more, or leave it out to read everything")
    try:
        with path.open("rb") as file:
            requests = list(islice(_read_any_format(path, _numbered(path, file)), limit or MOST_REQUESTS + 1))
    except OSError as error:
        raise UserError(f"cannot read the workload {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not text; kvproof reads {' or '.join(FORMATS)}") from error
    if not requests:
        raise UserError(f"{path}: the workload holds no request")
    if limit is None and len(requests) > MOST_REQUESTS:
        raise UserError(f"{path}: holds more than {MOST_REQUESTS:,} requests: say with --limit how many to read")
    return [_scaled(request, scale) for request in requests]


def _scaled(request: WorkloadRequest, scale: int) -> WorkloadRequest:
    new, output = (math.ceil(tokens / scale) for tokens in (request.new_tokens, request.output_tokens))
    return replace(request, new_tokens=new, output_tokens=output)


def _numbered(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers."""
    for number in count(1):
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{at(path, number)}: the line is longer than {LONGEST_LINE} bytes: no workload has one so long"
            )
        if text := line.decode("utf-8").strip():
            yield number, text


def _read_any_format(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[WorkloadRequest]:
    first = next(lines, None)
    if first is None:
        return iter(())
    number, text = first
    if text.startswith("{"):
        return _read_mooncake(path, chain([first], lines))
    columns = [column.strip() for column in text.removeprefix("\ufeff").split(",")]
    if set(AZURE_COLUMNS) <= set(columns):
        return _read_azure(path, columns, lines)
    raise UserError(f"{at(path, number)}: kvproof reads {' or '.join(FORMATS)}; found the line {_short(text)}")


# --- Mooncake -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Turn:
    """What a later request needs to know about the one that it continues."""

    session: str
    length: int


def _read_mooncake(path: Path, lines: _Lines) -> Iterator[WorkloadRequest]:
    """A request continues the latest earlier one whose blocks it repeats, all but the last: see `_known_prefix`.

    Sessions only append. So a turn that was regenerated or edited (its input is no longer than the conversation that it
    repeats) counts as one new token, and a conversation that forks continues as one session in order of arrival.
    """
    turns = _Turns()
    for number, line in lines:
        row = _mooncake_row(path, number, line)
        blocks = tuple(row["hash_ids"])
        earlier = turns.longest_repeated_by(blocks)
        length = row["input_length"] + row["output_length"]
        if earlier is None:
            session, new_tokens = f"c{number}", row["input_length"]
        else:
            session, new_tokens = earlier.session, max(1, row["input_length"] - earlier.length)
        known = _known_prefix(blocks)
        if len(known) >= LEAST_COMMON_BLOCKS:
            turns.keep(known, _Turn(session, length))
        yield WorkloadRequest(
            arrival_ms=float(row["timestamp"]),
            session=session,
            new_tokens=new_tokens,
            output_tokens=row["output_length"],
            prefix_group=f"block-{blocks[0]}" if blocks else None,
        )


def _known_prefix(blocks: tuple[int, ...]) -> tuple[int, ...]:
    """The blocks that a continuation must repeat: all but the last one.

    The last block of a prompt is partly filled; the reply fills it up, so it comes back under another id.
    """
    return blocks[:-1]


class _Turns:
    """Turns by their blocks, as a tree, so that a row takes time by its length alone, whatever came before."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}
        """The node behind a node, by the block between them; the root is 0."""
        self._turns: dict[int, _Turn] = {}

    def keep(self, blocks: tuple[int, ...], turn: _Turn) -> None:
        node = 0
        for block in blocks:
            node = self._nodes.setdefault((node, block), len(self._nodes) + 1)
        self._turns[node] = turn

    def longest_repeated_by(self, blocks: tuple[int, ...]) -> _Turn | None:
        found, node = None, 0
        for block in blocks:
            after = self._nodes.get((node, block))
            if after is None:
                break
            node = after
            found = self._turns.get(node, found)
        return found


def _mooncake_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parsed(line)
    except ValueError as error:
        raise UserError(f"{at(path, number)}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UserError(f"{at(path, number)}: a Mooncake row is an object; found {_short(line)}")
    if row.get("record") == "header":
        raise UserError(f"{at(path, number)}: this is a trace, not a workload; check it with: kvproof replay {path}")
    missing = [field for field in MOONCAKE_FIELDS if field not in row]
    if missing:
        found = f"missing {', '.join(missing)}; found the fields {_short(', '.join(row), 200)}"
        raise UserError(f"{at(path, number)}: kvproof reads {' or '.join(FORMATS)}; {found}")
    for field, least, most in (
        ("timestamp", 0, LATEST_MS),
        ("input_length", 1, MOST_TOKENS),
        ("output_length", 1, MOST_TOKENS),
    ):
        _require_number(path, number, field, row[field], least, most)
    if not isinstance(row["hash_ids"], list) or not all(isinstance(block, int) for block in row["hash_ids"]):
        found = _short(str(row["hash_ids"]))
        raise UserError(f"{at(path, number)}: hash_ids must be a list of whole numbers; found {found}")
    return row


def _require_number(path: Path, number: int, field: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        upto = f"{least} or more" if not isinstance(value, int) or value < least else f"{least} to {most}"
        raise UserError(f"{at(path, number)}: {field} must be a whole number of {upto}; found {value!r:.60}")


# --- Azure ----------------------------------------------------------------------------------------------------------


def _read_azure(path: Path, columns: list[str], lines: _Lines) -> Iterator[WorkloadRequest]:
    """Each row is an ordinary request of its own: this trace does not say which requests belong together."""
    start: float | None = None
    for number, line in lines:
        row = dict(zip(columns, _cells(path, number, line), strict=False))
        values = [row.get(column) for column in AZURE_COLUMNS]
        if None in values:
            raise UserError(f"{at(path, number)}: expected the columns {', '.join(columns)}; found {_short(line)}")
        timestamp, context, generated = (str(value).strip() for value in values)
        now = _azure_ms(path, number, timestamp)
        start = now if start is None else start
        yield WorkloadRequest(
            arrival_ms=round(now - start, 4),
            session=None,
            new_tokens=_azure_count(path, number, "ContextTokens", context),
            output_tokens=_azure_count(path, number, "GeneratedTokens", generated),
            prefix_group=None,
        )


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise UserError(f"{at(path, number)}: not a row of a CSV file: {error}") from error


# Seven digits of a second and an optional zone: more than `datetime.fromisoformat` of Python 3.10 takes.
_AZURE_TIME = re.compile(r"(?P<whole>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?(?:\+00:00|Z)?")


def _azure_ms(path: Path, number: int, text: str) -> float:
    matched = _AZURE_TIME.fullmatch(text)
    if matched is None:
        raise UserError(
            f"{at(path, number)}: TIMESTAMP must look like 2023-11-16 18:17:03.9799600; found {_short(text)}"
        )
    try:
        whole = datetime.fromisoformat(matched["whole"])
    except ValueError as error:
        raise UserError(f"{at(path, number)}: TIMESTAMP {_short(text)}: {error}") from error
    # Only differences are used, so the zone does not matter; a fixed one keeps daylight saving out.
    seconds = (whole - datetime(1970, 1, 1)).total_seconds()
    return (seconds + float(f"0.{matched['fraction'] or 0}")) * 1000


def _azure_count(path: Path, number: int, field: str, text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS
    if not is_number or int(text) < 1:
        raise UserError(f"{at(path, number)}: {field} must be a whole number of 1 or more; found {_short(text)}")
    _require_number(path, number, field, int(text), 1, MOST_TOKENS)
    return int(text)


def _short(text: str, width: int = 60) -> str:
    return repr(text if len(text) <= width else text[:width] + "…")
