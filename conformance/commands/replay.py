"""`kvproof replay`."""

from __future__ import annotations

from ..errors import UserError


def replay() -> None:
    """Not built yet."""
    raise UserError("kvproof replay is not built yet")
