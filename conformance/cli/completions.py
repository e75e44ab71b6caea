"""What the shell offers after TAB in place of a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvproof.conformance.adapters.scenarios import scenarios_of
from kvproof.conformance.errors import UserError
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES, every_invariant
from kvproof.spec.profiles import PROFILES

Offers = list[tuple[str, str]]
"""Names, each with a line that shells show beside it."""


def faults(incomplete: str) -> Offers:
    return _beginning(incomplete, ((fault.id, fault.summary) for fault in FAULTS.values()))


def actions(incomplete: str) -> Offers:
    return _beginning(incomplete, ((a.name, a.summary) for machine in MACHINES for a in machine.actions.values()))


def rules(incomplete: str) -> Offers:
    """What `explain` knows by name; the shell itself offers files beside them."""
    invariants = ((invariant.id, invariant.statement) for invariant in every_invariant().values())
    return [*_beginning(incomplete, invariants), *faults(incomplete), *actions(incomplete)]


def profiles(incomplete: str) -> Offers:
    return _beginning(incomplete, ((profile.name, profile.summary) for profile in PROFILES.values()))


def profiles_and_auto(incomplete: str) -> Offers:
    return [*_beginning(incomplete, [("auto", "of the release that the trace names")]), *profiles(incomplete)]


def scenarios(incomplete: str) -> Offers:
    """Of the reference: those of a server's release are known where that is installed only."""
    try:
        return _beginning(incomplete, scenarios_of("reference").items())
    except UserError:
        return []


def of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """An offer of fixed names."""

    def offered(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return offered


CHECKERS = of(["auto", "compiled", "interpreted"])


def _beginning(incomplete: str, offers: Iterable[tuple[str, str]]) -> Offers:
    return [(name, line) for name, line in offers if name.startswith(incomplete)]
