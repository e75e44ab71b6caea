"""What steps of the gate need: what must be installed, and what is known of a target and accepted."""

from __future__ import annotations

from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.report.needs import INSTALL, is_missing
from kvproof.conformance.traces.data_file import SMALL, read_text


def require_fuzzer() -> None:
    """Raises UserError if it is not installed."""
    if is_missing("hypothesis"):
        raise UserError(f"fuzzing needs hypothesis: {INSTALL['hypothesis']}, or leave it out with --skip fuzz")


def require_solver() -> None:
    """Raises UserError if it is not installed: an environment that only records may lack it."""
    if is_missing("z3"):
        raise UserError(f"a proof needs z3: {INSTALL['z3']}, or leave it out with --skip proof --skip kills")


def can_fuzz_the_reference() -> bool:
    return not any(map(is_missing, ("hypothesis", "torch")))


def accepted_in(path: Path) -> frozenset[str]:
    """The signatures of a file: one a line, `#` begins a comment. Raises UserError if it cannot be read, or names none."""
    try:
        lines = [line.strip() for line in read_text(path, SMALL).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    signatures = frozenset(line for line in lines if line and not line.startswith("#"))
    if not signatures:
        raise UserError(f"{path}: names no signature; a finding's stands in its report.txt")
    return signatures
