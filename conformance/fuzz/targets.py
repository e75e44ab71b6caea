"""The targets by name: those of kvproof, and one of a maintainer's own, `--target my_module:factory`."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from pathlib import Path

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.fuzz.target import Target

TARGETS = {
    "reference": "kvproof.conformance.fuzz.reference:Reference",
    "sglang": "kvproof.conformance.fuzz.sglang:SGLang",
}
"""Where each target of kvproof is made. It is imported when it is asked for: it may not be installed."""


def target_named(name: str) -> Target:
    """Raises UserError, with the reason, if there is none or it cannot be made."""
    if ":" in name:
        return _made_by(name)
    if name not in TARGETS:
        raise unknown("target", name, (*TARGETS, "module:factory"))
    module, _, factory = TARGETS[name].partition(":")
    target: Target = getattr(importlib.import_module(module), factory)()
    return target


def _made_by(name: str) -> Target:
    """The target that a factory of the user makes."""
    module, _, factory = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a script has the folder that it is installed in
    try:
        target: Target = getattr(importlib.import_module(module), factory)()
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # what the module itself imports
            raise UserError(f"target {name}: {type(error).__name__}: {error}") from error
        raise UserError(
            f"target {name}: there is no module {error.name!r} in the current folder ({here}), in the folders of PYTHONPATH "
            f"({os.environ.get('PYTHONPATH') or 'not set'}), or installed in {sys.prefix}"
        ) from error
    except Exception as error:
        raise UserError(f"target {name}: {type(error).__name__}: {error}") from error
    lacking = [part for part in ("name", "settings", "seeds", "acts", "start") if not hasattr(target, part)]
    if lacking:
        raise UserError(f"target {name}: what {factory}() returned has no {', '.join(lacking)}")
    for part in ("profile", "sessions_may_fill_it"):  # of a class that does not inherit from `Target`
        if not hasattr(target, part):
            setattr(target, part, getattr(Target, part))
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
    """The command that continues a campaign."""
    return f"kvproof fuzz{_named(target)} --resume --out {shlex.quote(str(folder))}"


def _named(target: str) -> str:
    """What a file alone may not choose."""
    return "" if target in TARGETS else f" --target {shlex.quote(target)}"
