"""What a step of the gate needs beside kvproof itself."""

from __future__ import annotations

import importlib.util

from kvproof.conformance.errors import UserError


def require_fuzzer() -> None:
    """Raises UserError if it is not installed."""
    if importlib.util.find_spec("hypothesis") is None:
        raise UserError("fuzzing needs hypothesis: pip install 'kvproof[fuzz]', or leave it out with --skip fuzz")


def can_fuzz_the_reference() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("hypothesis", "torch"))
