"""`kvproof prove`."""

from __future__ import annotations

from ..errors import UserError


def prove() -> None:
    """Not built yet."""
    raise UserError("kvproof prove is not built yet")
