"""sglang-jax, recorded: its scheduler and its cache layer in this process, from a checkout that the user names.

`record_scenario` runs one of `SCENARIOS` on the work tree that KVPROOF_SGLANG_JAX names and writes its trace. Reading the
table needs no checkout; recording does, and jax on a CPU. Nothing of sglang-jax is part of this project.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.conformance.adapters.sglang_jax.record import record_scenario
    from kvproof.conformance.adapters.sglang_jax.scenarios import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario", "record_scenario"]

_HOME = {"record_scenario": "record", "SCENARIOS": "scenarios", "Scenario": "scenarios"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
