"""Names of traces: how each ends, and those of a run that writes several."""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.traces.columnar_blocks import COLUMNAR_SUFFIX

ENDINGS = (".jsonl", ".jsonl.gz", COLUMNAR_SUFFIX)


def require_ending(path: Path) -> None:
    """The name of a trace says how it is written. Raises UserError for a name that says nothing."""
    if not path.name.endswith(ENDINGS):
        raise UserError(f"{path}: the name of a trace ends with one of {', '.join(ENDINGS)}")


def of_rank(wanted: str | Path, rank: str | None) -> Path:
    """The file of one rank: it stands where the name has `{rank}`, or else before the suffixes. None: the only one there is."""
    named = Path(str(wanted).replace("{rank}", rank or "0"))
    return with_word(named, rank) if rank is not None and "{rank}" not in str(wanted) else named


def with_word(path: Path, word: str) -> Path:
    """`out/trace.jsonl.gz` -> `out/trace.WORD.jsonl.gz`"""
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}.{word}{dot}{suffixes}")
