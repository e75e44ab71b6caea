"""The targets that can be recorded, and the scenarios that each can run."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.errors import UserError, unknown


@dataclass(frozen=True)
class Target:
    """Something that can be driven. `adapter` records it; `scenarios` is the module that holds its SCENARIOS table."""

    adapter: str
    scenarios: str
    install: str


TARGETS: dict[str, Target] = {
    "reference": Target(
        adapter="kvproof.conformance.adapters.reference",
        scenarios="kvproof.impl.scenarios",
        install="pip install 'kvproof[reference]'",
    ),
    "sglang": Target(
        adapter="kvproof.conformance.adapters.sglang.record",
        scenarios="kvproof.conformance.adapters.sglang.scenarios",
        install="run kvproof in an environment that has sglang",
    ),
    "sglang-jax": Target(
        adapter="kvproof.conformance.adapters.sglang_jax.record",
        scenarios="kvproof.conformance.adapters.sglang_jax.scenarios",
        install="run kvproof in an environment that has jax: see docs/sglang-jax.md",
    ),
}


def scenarios_of(target: str) -> dict[str, str]:
    """Name and one-line summary of each scenario of a target."""
    table = load(target, TARGETS[target].scenarios).SCENARIOS
    return {name: scenario.summary for name, scenario in table.items()}


def require_scenario(target: str, name: str) -> str:
    names = scenarios_of(target)
    if name not in names:
        raise unknown(f"scenario of {target}", name, names)
    return name


def load(target: str, module: str) -> Any:
    """Import a target's module; its names are looked up when they are used.

    What a target needs is optional, so a missing package is the user's to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing.partition(".")[0] == "kvproof":
            raise
        raise UserError(
            f"target {target} needs {missing}, which is not installed: {TARGETS[target].install}"
        ) from error
