"""A user's own mistakes: answered in one sentence with exit code 2, never with a traceback.

A good message names the thing, the place (path:line), the valid choices and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Something the user can put right: change the argument or the file that the message names."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def at(path: str | Path, line: int | None = None) -> str:
    """The place of a mistake in the form that editors and terminals make clickable: path:line."""
    return f"{path}:{line}" if line is not None else str(path)


def unknown(kind: str, name: object, valid: Iterable[str]) -> UserError:
    """The error for a name that is not in a table: the nearest name first, then every valid one."""
    return UserError(unknown_message(kind, name, valid))


def unknown_message(kind: str, name: object, valid: Iterable[str]) -> str:
    """unknown fault 'F22862'; did you mean F22862a or F22862b?; valid: F994a, F12224, …"""
    choices = list(valid)
    parts = [f"unknown {kind} {name!r}"]
    near = _nearest(str(name), choices)
    if near:
        parts.append(f"did you mean {' or '.join(near)}?")
    parts.append(f"valid: {', '.join(choices)}" if choices else "there is none to choose from")
    return "; ".join(parts)


def _nearest(name: str, choices: list[str]) -> list[str]:
    """At most two candidates. Upper and lower case are a typing matter, so they do not count as a difference."""
    by_folded = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=2, cutoff=0.7)
    return [by_folded[folded] for folded in close]
