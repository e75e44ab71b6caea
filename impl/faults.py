"""The known failures by id: classes that put the faulty rule back over the right one.

A fault replaces whole methods; the right code never asks whether a fault is on. The id is the pull request that fixed it.
`assemble` returns the classes of an engine with any set of faults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kvproof.impl import scheduling_faults, session_faults, window_faults
from kvproof.impl.assembly import Parts
from kvproof.impl.config import ConfigError


class Fault:
    def __init__(self, *deviations: type) -> None:
        self.deviations = deviations

    @property
    def description(self) -> str:
        """The rule as it was, in one sentence."""
        _, _, text = (self.deviations[0].__doc__ or "").partition(": ")
        return " ".join(text.split())


def _faults_by_id() -> dict[str, Fault]:
    """Every class of the three modules of faults, by the id that its docstring begins with."""
    found: defaultdict[str, list[type]] = defaultdict(list)
    for module in (session_faults, scheduling_faults, window_faults):
        for part in vars(module).values():
            if isinstance(part, type) and part.__module__ == module.__name__:
                found[(part.__doc__ or "").partition(":")[0]].append(part)
    return {name: Fault(*found[name]) for name in sorted(found)}


FAULTS = _faults_by_id()


def assemble(names: Sequence[str]) -> Parts:
    """The classes of an engine with these faults on."""
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise ConfigError(f"unknown fault {unknown[0]!r}; valid: {', '.join(FAULTS)}")
    return Parts([deviation for name in sorted(set(names)) for deviation in FAULTS[name].deviations])
