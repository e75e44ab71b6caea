"""What a fuzzer needs of a target, and how one is found by its name.

A target is a class of its own for each server: it says which settings there are, and starts a run. A maintainer's own:
`--target my_module:factory`, where `factory()` returns a `Target`.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.spec.trace import Header

Tell = Callable[[Any], None]
"""Is given each event as it happens: an object with the fields of docs/events.md."""


class Run(Protocol):
    """One server under test, from its start. Names are unique in a run."""

    header: Header

    def open(self, session: str) -> None: ...

    def turn(
        self,
        session: str,
        turn: str,
        new_tokens: int,
        max_new_tokens: int,
        *,
        shared: int,
        logprob: bool,
        priority: int,
    ) -> None:
        """A turn that appends to its session; `session` None: an ordinary request."""

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, *, shared: int, priority: int) -> None:
        """An ordinary request."""

    def abort(self, turn: str) -> None: ...

    def retract(self, turn: str) -> None:
        """Force a running request back to the queue; nothing where it does not run."""

    def close(self, session: str) -> None: ...

    def launch(self) -> None:
        """The first half of a step, so that users can come between the halves; nothing where a step is one."""

    def step(self) -> None:
        """One step of the scheduler, or the second half of one."""

    def unfinished(self) -> list[str]:
        """Requests that are not over, the running ones last."""

    def not_returned(self) -> str | None:
        """At the end, when all is closed: what did not come back, in words."""

    def stop(self) -> None: ...


class Target(Protocol):
    name: str
    settings: Mapping[str, Sequence[Setting]]
    """The values of each setting that are worth trying, from the tamest to the most hostile."""
    seeds: Sequence[Schedule]
    """Schedules that are known to be worth playing, if any: others are drawn around them."""
    acts: Sequence[str]
    """What can be done to it, of `schedule.Do`."""
    # May have:
    # profile: str, by whose rules it is judged unless the user says so, as in `kvproof replay --profile`;
    # sessions_may_fill_it: bool, if what an idle session holds stays its own until it is closed, whoever waits for it.
    own_errors: tuple[type[Exception], ...]
    """What it raises where it finds something wrong with itself."""

    def page_size(self, settings: Mapping[str, Setting]) -> int: ...

    def longest(self, settings: Mapping[str, Setting]) -> int:
        """Tokens that a row holds."""

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell, *, own_checks: bool = True
    ) -> Run:
        """`own_checks`: whether it looks for mistakes itself. Raises UserError if the settings cannot work."""


def _reference() -> Target:
    from kvproof.conformance.fuzz.reference import Reference

    return Reference()


def _sglang() -> Target:
    from kvproof.conformance.fuzz.sglang import SGLang

    return SGLang()


TARGETS: dict[str, Callable[[], Target]] = {"reference": _reference, "sglang": _sglang}


def target_named(name: str) -> Target:
    """Raises UserError, with the reason, if there is none or it cannot be made."""
    if ":" not in name:
        if name not in TARGETS:
            raise unknown("target", name, (*TARGETS, "module:factory"))
        return TARGETS[name]()
    module, _, factory = name.partition(":")
    try:
        target: Target = getattr(importlib.import_module(module), factory)()
    except Exception as error:
        raise UserError(f"target {name}: {type(error).__name__}: {error}") from error
    lacking = [part for part in ("name", "settings", "seeds", "acts", "start") if not hasattr(target, part)]
    if lacking:
        raise UserError(f"target {name}: what {factory}() returned has no {', '.join(lacking)}")
    return target


def target_of_file(path: Path, named: str, chosen: str | None) -> Target:
    """The target that a file names: a schedule, or the state of a campaign. `chosen`: the one that the user named, if any.

    A file may come from a stranger, and a target of one's own is code: to import it is to run it. So the user names it, too.
    Raises UserError unless that is so.
    """
    if named not in TARGETS and chosen is None:
        raise UserError(
            f"{path} is about target {named!r}, which is Python code, and to play it is to import and run that with all your "
            f"rights. If you trust it, say so: --target {shlex.quote(named)}"
        )
    if chosen is not None and chosen != named:
        raise UserError(f"{path} is about target {named!r}, not {chosen!r}")
    return target_named(named)


def to_play_again(target: str, place: Path) -> str:
    """The command that plays a finding once more."""
    return f"kvproof fuzz{_named(target)} --replay {shlex.quote(str(place))}"


def to_go_on(target: str, folder: Path) -> str:
    """The command that goes on with a campaign."""
    return f"kvproof fuzz{_named(target)} --resume --out {shlex.quote(str(folder))}"


def _named(target: str) -> str:
    """What a file alone may not choose."""
    return "" if target in TARGETS else f" --target {shlex.quote(target)}"
