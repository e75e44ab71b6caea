"""Which actions a change is about: from the difference between the rules as they stand and as they were at a git revision.

A top-level definition has changed if its code has, comments and docstrings aside. An action is concerned if its rule, one of its
faults or a profile's form of it reaches such a definition by name. What everything rests on (states, effects, invariants, the
number domain) reaches all of them.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import kvproof.spec
from kvproof.conformance.errors import UserError, unknown
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES
from kvproof.spec.profiles import PROFILES

RULES = Path(str(kvproof.spec.__file__)).parent
PACKAGE = "kvproof.spec"
NAMED_BY_ACTIONS = ("actions/", "tree.py", "staging.py", "progress.py", "faults/", "profiles.py")
"""Files whose definitions concern only the actions that reach them. What stands in others concerns all."""
SAYS_NO_RULE = ("trace.py", "__init__.py", "actions/__init__.py", "faults/__init__.py")
GIT_SECONDS = 30.0

Definition = tuple[str, str]
"""File below `spec/`, and name in it."""


def every_action() -> tuple[str, ...]:
    return tuple(name for machine in MACHINES for name in machine.actions)


def require_actions(names: Iterable[str]) -> tuple[str, ...]:
    """The names as they were given. Raises UserError for one that is no action."""
    given = tuple(names)
    for name in given:
        if name not in every_action():
            raise unknown("action", name, every_action())
    return given


def changed_since(revision: str) -> tuple[str, ...]:
    """The actions that differ between the rules here and where `revision` and HEAD parted. Raises UserError without git."""
    base = _base_of(revision)
    files = _git("diff", "--name-only", "--relative", "--end-of-options", base, "--", ".").splitlines()
    files += _git("ls-files", "--others", "--exclude-standard", "--", ".").splitlines()
    changed: set[Definition] = set()
    for name in (file for file in files if file.endswith(".py") and file not in SAYS_NO_RULE):
        differing = _differing(_source_at(base, name), _source_now(name))
        if differing and not name.startswith(NAMED_BY_ACTIONS):
            return every_action()
        changed |= {(name, definition) for definition in differing}
    concerned = {action: _concerning(action, changed) for action in every_action()}
    if changed - set().union(*concerned.values()):
        return every_action()  # nobody reaches it by name: nobody knows what rests on it
    return tuple(action for action, definitions in concerned.items() if definitions)


def _concerning(action: str, changed: set[Definition]) -> set[Definition]:
    """Those of the changed definitions that an action rests on: what its forms reach, and their entries in tables."""
    concerned: set[Definition] = set()
    for name, functions in _forms(action):
        concerned |= {(file, entry) for file, entry in changed if entry.endswith(f"[{name}]")}
        concerned = concerned.union(*(_reach(function) & changed for function in functions))
    return concerned


def _forms(action: str) -> Iterator[tuple[str, list[Callable[..., Any]]]]:
    """Each form of an action (the rule, a fault's, a profile's): what its entry in a table is called, and its functions."""
    for machine in MACHINES:
        if action in machine.actions:
            rule = machine.actions[action]
            yield action, [rule.run, rule.applies]
    for fault in FAULTS.values():
        if runs := [table[action].run for table in (fault.deviations, fault.in_traces) if action in table]:
            yield fault.id, runs
    for profile in PROFILES.values():
        if action in profile.replaced:
            yield profile.name, [profile.replaced[action].run, profile.replaced[action].applies]


def _reach(function: Callable[..., Any]) -> set[Definition]:
    """Every definition that is reached by name from a function."""
    written = inspect.unwrap(function)
    code, file = getattr(written, "__code__", None), _file_of(written.__module__)
    if code is None or file is None:
        return set()
    here = [name for name, node in _definitions(_source_now(file)).items() if _spans(node, code.co_firstlineno)]
    reached, frontier = set[Definition](), [(file, name) for name in here]
    while frontier:
        definition = frontier.pop()
        if definition not in reached:
            reached.add(definition)
            frontier += _named_in(definition)
    return reached


@cache
def _named_in(definition: Definition) -> list[Definition]:
    file, name = definition
    source = _source_now(file)
    definitions, imported = _definitions(source), _imported(source)
    node = definitions.get(name)
    if node is None:
        return []
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return [(file, n) if n in definitions else imported[n] for n in names if n in definitions or n in imported]


@cache
def _definitions(source: str) -> dict[str, ast.AST]:
    """Top-level definitions by name. Of a table of actions each entry is one of its own: a change of one is not one of all."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                entries = list(_entries_of(value)) if value is not None else []
                found.update({f"{name}[{entry}]": call for entry, call in entries})
                if not entries:
                    found[name] = node
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case _:
                found[f"statement {len(found)}"] = node
    return found


def _entries_of(value: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """`Profile("sglang-0.5.11", …)`: entries of a table, by what they are called."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Profile":
            named = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("id", "name"))]
            for argument in named[:1]:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value), node


@cache
def _imported(source: str) -> dict[str, Definition]:
    """What a file takes from other files of the rules, under the name that it has here."""
    found: dict[str, Definition] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (file := _file_of(node.module or "")) is not None:
            found.update({alias.asname or alias.name: (file, alias.name) for alias in node.names})
    return found


def _file_of(module: str) -> str | None:
    """The file of a module of the rules; None for any other module."""
    name = module.removeprefix(PACKAGE + ".")
    return name.replace(".", "/") + ".py" if name != module else None


def _differing(before: str, after: str) -> set[str]:
    old, new = ({name: _meaning(node) for name, node in _definitions(text).items()} for text in (before, after))
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def _meaning(node: ast.AST) -> str:
    """Its code without docstrings; comments are not in it anyway."""
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            inner.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(node)


def _spans(node: ast.AST, line: int) -> bool:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    return bool(first <= line <= (node.end_lineno or first))  # type: ignore[attr-defined]


def _source_now(file: str) -> str:
    path = RULES / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _source_at(revision: str, file: str) -> str:
    """Empty where it was not there."""
    with suppress(UserError):
        return _git("show", "--end-of-options", f"{revision}:./{file}")
    return ""


def _base_of(revision: str) -> str:
    """Where a revision and HEAD parted; the revision itself where git knows of no such place."""
    with suppress(UserError):
        return _git("merge-base", "--end-of-options", revision, "HEAD").strip()
    return revision


def _git(*arguments: str) -> str:
    """Raises UserError where git has no answer."""
    hint = (
        "name what changed with --action, or leave --since out; it is for a checkout of kvproof that is installed by "
        "pip install -e ., with its history (in a workflow: actions/checkout with fetch-depth: 0)"
    )
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=RULES, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"git cannot say what changed: {error}; {hint}") from error
    if done.returncode == 0:
        return done.stdout
    why = (done.stderr.strip().splitlines() or ["no reason given"])[0]
    raise UserError(f"git cannot say what changed in {RULES}: {why}; {hint}")
