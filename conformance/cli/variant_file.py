"""A maintainer's own rule in a file of its own: executed, checked for its form, and written down as data.

This runs in a process of its own (`conformance/cli/variant.py`), because the file may change any module that it imports.

The form (docs/proving.md): `REPLACES` names one action, and `run(d, s, p)` gives its step; or `REPLACES` maps names to such
functions. `applies(d, s)`, `SUMMARY` and `HELPERS` may be left out. Every mistake is answered with the line of the file.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import z3

from kvproof.conformance.errors import UserError, at, unknown_message
from kvproof.model.symbolic import Symbols
from kvproof.model.written_rule import WrittenFlag, WrittenHelper, WrittenRule, written_flag, written_rule
from kvproof.spec.actions import ACTIONS, Action, Guard, Run, Step
from kvproof.spec.actions.action import summary_of
from kvproof.spec.domain import Domain, Flag
from kvproof.spec.effects import Effect, apply_effects
from kvproof.spec.state import FIELDS, Ledger

FORM = "docs/proving.md shows the form"
NO_BRANCHES = (
    "a rule cannot branch on the state (if, and, or, not, min, max, a < b < c): it is proved for all states at once; "
    "use d.where, d.every, d.some, d.no, smaller, larger"
)


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """What a file says: its rules by the action that each replaces, and where it says when that one applies; or a mistake.

    `helpers`: auxiliary invariants by their ids.
    """

    mistake: str = ""
    summary: str = ""
    rules: dict[str, WrittenRule] = dataclasses.field(default_factory=dict)
    applies: WrittenFlag | None = None
    helpers: dict[str, WrittenHelper] = dataclasses.field(default_factory=dict)


def written_file(path: Path) -> WrittenFile:
    """Execute the file and write down its rules."""
    try:
        return _written(path)
    except UserError as error:
        return WrittenFile(mistake=error.message)


def _written(path: Path) -> WrittenFile:
    """Raises UserError for all that is wrong with the file."""
    module, tree = _executed(path)
    line = _line_of_replaces(tree)
    if line is None:
        raise UserError(
            f'{path}: no REPLACES: name the action that the file replaces, as in REPLACES = "match_slot"; {FORM}'
        )
    place = at(path, line)
    summary = getattr(module, "SUMMARY", "")
    if not isinstance(summary, str):
        raise UserError(f"{path}: SUMMARY is a sentence, not {type(summary).__name__}")
    rules = _rules(module, place)
    applies = getattr(module, "applies", None)
    if applies is not None and (len(rules) > 1 or not callable(applies)):
        raise UserError(f"{path}: applies(d, s) is a function, and only where REPLACES names one action; {FORM}")
    watched, written = _Watched(path), {}
    for name, run in rules.items():
        if name not in ACTIONS:
            raise UserError(f"{place}: {unknown_message('action', name, ACTIONS)}")
        written[name] = _written_rule(watched.run(ACTIONS[name], run), ACTIONS[name], path, _first_line(run))
    when = _written_flag(watched.flag(applies)) if applies else None
    return WrittenFile("", summary, written, when, _helpers(module, watched))


def _helpers(module: ModuleType, watched: _Watched) -> dict[str, WrittenHelper]:
    """Its auxiliary invariants; the first line of a docstring is the statement."""
    given, path = getattr(module, "HELPERS", {}), watched.path
    if not isinstance(given, dict) or not all(callable(holds) for holds in given.values()):
        raise UserError(
            f"{path}: HELPERS is a dict from ids, X and a number, to functions (d, s) that give a flag; {FORM}"
        )
    found = {}
    for name, holds in given.items():
        flag = _written_flag(watched.flag(holds))
        found[str(name)] = WrittenHelper(summary_of(holds) or holds.__name__, flag, str(path), _first_line(holds))
    return found


def _written_rule(run: Run, action: Action, path: Path, line: int | None) -> WrittenRule:
    d = Symbols()  # whose values tell lengths from counts; those of terms do not
    run(d, d.arbitrary(Ledger), d.parameters(action.params))
    return written_rule(run, action.params, str(path), line)


def _written_flag(holds: Callable[[Domain, Ledger], Flag]) -> WrittenFlag:
    d = Symbols()
    holds(d, d.arbitrary(Ledger))
    return written_flag(holds)


def _executed(path: Path) -> tuple[ModuleType, ast.Module]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a Python file in UTF-8") from error
    try:
        tree = ast.parse(text, str(path))
        code = compile(tree, str(path), "exec")
    except SyntaxError as error:
        raise UserError(f"{at(path, error.lineno)}: syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} is not a Python file: {error}") from error
    module = ModuleType("kvproof_variant")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses of the file look their module up
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        raise _mistake(path, error, None) from error
    return module, tree


def _line_of_replaces(tree: ast.Module) -> int | None:
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "REPLACES" for target in targets):
            return statement.lineno
    return None


def _rules(module: ModuleType, place: str) -> Mapping[str, Callable[..., Any]]:
    """The functions by the action that they replace."""
    replaces = getattr(module, "REPLACES", None)
    if isinstance(replaces, str):
        replaces = {replaces: getattr(module, "run", None)}
        if not callable(replaces[next(iter(replaces))]):
            raise UserError(f"{place}: no function run(d, s, p) gives the step of the replaced action; {FORM}")
    if not isinstance(replaces, dict) or not replaces:
        raise UserError(f"{place}: REPLACES is the name of an action, or a dict from names to functions; {FORM}")
    for name, run in replaces.items():
        if not callable(run):
            raise UserError(f"{place}: REPLACES[{name!r}] is not a function (d, s, p); {FORM}")
    return replaces


@dataclasses.dataclass(frozen=True)
class _Watched:
    """Functions of the file, as functions that raise only UserErrors: with the file's line, and never a traceback of ours."""

    path: Path

    def run(self, action: Action, function: Callable[..., Any]) -> Callable[[Domain, Ledger, SimpleNamespace], Step]:
        @functools.wraps(function)
        def run(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
            try:
                with _no_silent_branches():
                    step = function(d, s, p)
                    self._check(d, step, function)
                    apply_effects(d, step.after, step.effects)
            except UserError:
                raise
            except (Exception, SystemExit) as error:
                raise _mistake(self.path, error, function, action) from error
            return step

        return run

    def flag(self, function: Callable[..., Any]) -> Callable[[Domain, Ledger], Flag]:
        def holds(d: Domain, s: Ledger) -> Flag:
            try:
                with _no_silent_branches():
                    return d.every(function(d, s))
            except (Exception, SystemExit) as error:
                raise _mistake(self.path, error, function) from error

        return holds

    def _check(self, d: Domain, step: Any, function: Callable[..., Any]) -> None:
        """The outcome is a step over the domain's own numbers."""
        place = at(self.path, _first_line(function))
        if not isinstance(step, Step):
            raise UserError(f"{place}: a rule returns Step(...), this one returned {type(step).__name__}; {FORM}")
        if not isinstance(step.after, Ledger):
            raise UserError(
                f"{place}: Step takes the state after it (s.but(...)) first, not {type(step.after).__name__}"
            )
        _check_each(step.guards, Guard, f'{place}: guards are a tuple of Guard("a sentence", flag)')
        _check_each(step.effects, Effect, f"{place}: effects are a tuple of those of kvproof.spec.effects")
        for field in FIELDS:
            value = getattr(step.after, field.name)
            if field.metadata["sort"] == "length" and not isinstance(value, type(d.zero)):
                raise UserError(
                    f"{place}: {field.name} is a length, not {type(value).__name__}: use d.zero, d.one, or sums of lengths"
                )


def _check_each(given: Any, kind: Any, form: str) -> None:
    if not isinstance(given, tuple):
        raise UserError(f"{form}, not {type(given).__name__}")
    for one in given:
        if not isinstance(one, kind):
            raise UserError(f"{form}; one is {type(one).__name__}")


@contextmanager
def _no_silent_branches() -> Iterator[None]:
    """Inside, an `if` on any symbol raises.

    Z3 itself answers `bool(x == y)` by comparing the two terms as text. So `if s.phase == RUNNING` would quietly take one
    branch, and the proof would be about that branch only.
    """

    def refuse(flag: Any) -> bool:
        if z3.is_true(flag) or z3.is_false(flag):
            return bool(z3.is_true(flag))
        raise TypeError(NO_BRANCHES)

    original = z3.BoolRef.__bool__
    z3.BoolRef.__bool__ = refuse
    try:
        yield
    finally:
        z3.BoolRef.__bool__ = original


def _mistake(
    path: Path, error: BaseException, function: Callable[..., Any] | None, action: Action | None = None
) -> UserError:
    """The error as one line, at the last line of the user's file that it went through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = lines[-1] if lines else _first_line(function)
    what = " ".join(str(error).split())
    if what == NO_BRANCHES or "branches on a value" in what:
        return UserError(f"{at(path, line)}: {NO_BRANCHES}")
    return UserError(f"{at(path, line)}: {type(error).__name__}{': ' if what else ''}{what}{_hint(error, action)}")


def _hint(error: BaseException, action: Action | None) -> str:
    text = str(error)
    if isinstance(error, AssertionError) or "PagedLength" in text or "'int' object has no attribute" in text:
        return " (lengths mix only with lengths: d.zero, d.one, d.tokens(pages))"
    if "SimpleNamespace" in text and action is not None:
        return f" (parameters of {action.name}: {', '.join(action.params) or 'none'})"
    return ""


def _first_line(function: Callable[..., Any] | None) -> int | None:
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code is not None else None
