"""Which rules a trace is judged by: the model's own, or those of the release that it was recorded from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.errors import UserError, at, unknown
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import FAULTS, KINDS, Fault
from kvproof.spec.gaps import GAPS, is_known
from kvproof.spec.profiles import PROFILES, Profile, profile_of
from kvproof.spec.trace import Header

OF_THE_TRACE = "auto"
"""In place of a profile's name: that of the release which the header names; where none is known, the model's own rules."""


@dataclass(frozen=True)
class JudgedBy:
    """`known`: deviations that are followed and counted. `hint`: what a user may want to ask for instead."""

    profile: Profile | None
    known: tuple[Fault, ...]
    hint: str = ""


def judged_by(header: Header, path: Path, profile: str | None, *, strict: bool) -> JudgedBy:
    """What a trace is judged by. Known deviations are those that its header declares and those of the profile; strict: none.

    Raises UserError if there is no such profile, or if the header names a deviation that its release is not known for, or a gap
    that no recorder has.
    """
    require_profile(profile)
    target = header.producer.target
    own = profile_of(target)
    for gap in header.gaps:
        if not is_known(gap):
            raise UserError(f"{at(path, 1)}: gaps: {unknown('gap', gap, GAPS).message}")
    for name in header.known_deviations:
        _require_allowed(name, target, own, path)
    chosen = own if profile == OF_THE_TRACE else PROFILES[profile] if profile is not None else None
    names = dict.fromkeys((*header.known_deviations, *(chosen.deviations if chosen is not None else ())))
    known = () if strict else tuple(FAULTS[name] for name in names)
    hint = ""
    if profile == OF_THE_TRACE and own is None:
        hint = f"there is no profile of {target}: judged by the model's own rules"
    elif own is not None and own is not chosen and (own.rules or chosen is not None):
        hint = f"this trace says {target}; its own rules: --profile {own.name}"
    return JudgedBy(chosen, known, hint)


def require_profile(name: str | None) -> None:
    """Raises UserError, with the valid choices, unless there is such a profile."""
    if name is not None and name != OF_THE_TRACE and name not in PROFILES:
        raise unknown("profile", name, [*PROFILES, OF_THE_TRACE])


def rules_of(profile: str | None = None) -> dict[str, Action]:
    """The rules that a profile stands for; without one the model's."""
    return PROFILES[profile].actions if profile is not None else dict(ACTIONS)


def may_judge_by(profile: str | None) -> list[dict[str, Action]]:
    """The tables of rules that traces may be judged by if this is asked for: `auto` leaves that to each trace."""
    return [rules_of(name) for name in (None, *PROFILES)] if profile == OF_THE_TRACE else [rules_of(profile)]


def _require_allowed(name: str, target: str, own: Profile | None, path: Path) -> None:
    """The header of a trace may name what the profile of its release lists, and nothing else: a bug that was fixed, or one of
    another release, is a violation wherever it is met.
    """
    if name not in FAULTS:
        raise UserError(f"{at(path, 1)}: known_deviations: {unknown('deviation', name, FAULTS).message}")
    if own is not None and name in own.deviations:
        return
    valid = (
        f"valid are {', '.join(own.deviations) or 'none'}"
        if own is not None
        else "there is no profile of it, so none is"
    )
    raise UserError(
        f"{at(path, 1)}: known_deviations: {name} ({KINDS[FAULTS[name].kind]}) is no known deviation of {target}: {valid}; "
        "leave it out of the header"
    )
