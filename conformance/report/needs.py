"""Packages that a command needs and that may not be installed: an environment that records may lack even the solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from kvproof.conformance.errors import UserError

INSTALL = {"z3": "pip install z3-solver", "hypothesis": "pip install 'kvproof[fuzz]'"}


def is_missing(package: str) -> bool:
    return find_spec(package) is None


def to_type(command: str, needs: str) -> str:
    """A command to type next, with how to install what it needs where that is missing."""
    return f"{command}  (first: {INSTALL[needs]})" if is_missing(needs) else command


@contextmanager
def naming_what_is_missing() -> Iterator[None]:
    """A package of `INSTALL` that cannot be imported inside is the user's to install. Raises UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in INSTALL:
            raise
        raise UserError(f"this needs {error.name}, which is not installed: {INSTALL[error.name]}") from error
