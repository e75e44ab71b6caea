"""Real SGLang, recorded: driven in this process on a machine without a GPU, or as a server that runs on its own.

`record_scenario` runs one of `SCENARIOS` on the release that the interpreter imports and writes its trace. Reading the table
needs no SGLang; recording does. Names are looked up when they are used: SGLang's processes import this package for the
plugin alone, which must cost them nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvproof.conformance.adapters.sglang.record import SGLangResult, record_scenario
    from kvproof.conformance.adapters.sglang.releases import RELEASES, Known, Release
    from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS, Scenario

__all__ = ["RELEASES", "SCENARIOS", "Known", "Release", "SGLangResult", "Scenario", "record_scenario"]

_HOME = {
    "SGLangResult": "record",
    "record_scenario": "record",
    "RELEASES": "releases",
    "Known": "releases",
    "Release": "releases",
    "SCENARIOS": "scenarios",
    "Scenario": "scenarios",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
