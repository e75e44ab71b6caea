"""Source trees: where the code under proof is read from, and what its modules define. Nothing is imported.

A tree is a folder (a checkout, an unpacked wheel, site-packages) or a commit of a local git repository.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol


class Tree(Protocol):
    """Files of Python source by their path below the root."""

    @property
    def name(self) -> str: ...

    def read(self, path: str) -> str | None:
        """The text of a file, or None where there is no such file."""
        ...


@dataclass(frozen=True)
class Folder:
    root: Path

    @property
    def name(self) -> str:
        return str(self.root)

    def read(self, path: str) -> str | None:
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None


@dataclass(frozen=True)
class Commit:
    """A commit of a local repository; `below` is the folder in it that holds the packages."""

    repository: Path
    commit: str
    below: str = ""

    @property
    def name(self) -> str:
        return f"{self.repository.name}@{self.commit}"

    def read(self, path: str) -> str | None:
        command = ["git", "-C", str(self.repository), "show", f"{self.commit}:{self.below}{path}"]
        shown = subprocess.run(command, capture_output=True, check=False)
        return shown.stdout.decode("utf-8") if shown.returncode == 0 else None


@dataclass
class Module:
    """One file: its functions, classes, imports and constants by name."""

    name: str
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Top-level functions, classes and assignments. The last one of a name counts."""
        found: dict[str, ast.stmt] = {}
        for statement in self.tree.body:
            for name in _defined_by(statement):
                found[name] = statement
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """(module, name in it) by the local name; the name is empty where the module itself is meant."""
        found: dict[str, tuple[str, str]] = {}
        for statement in self.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                found.update(imported_by(statement, self.name))
        return found

    @cached_property
    def uncertain(self) -> frozenset[str]:
        """Names of which nobody can tell what they are when a function runs; "*" for all of them.

        They are bound in other ways than by one plain definition or import, or handed to a call at import time.
        """
        found = set(self.definitions) & set(self.imports)
        for statement in self._running():
            found.update(set(bound_by(statement)) - set(_defined_by(statement)) - _imported_plainly(statement))
            found.update(self._changed_by(statement))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Global):
                found.update(node.names)
        return frozenset(found)

    def _running(self) -> Iterator[ast.stmt]:
        """Top-level statements that run: not those for type checkers alone."""
        for statement in self.tree.body:
            if (
                isinstance(statement, ast.If)
                and isinstance(statement.test, ast.Name)
                and self._is_never(statement.test.id)
            ):
                yield from statement.orelse
            else:
                yield statement

    def _is_never(self, name: str) -> bool:
        return self.imports.get(name) == ("typing", "TYPE_CHECKING") and name not in self.definitions

    def _changed_by(self, statement: ast.stmt) -> Iterator[str]:
        """Names whose objects a top-level statement may change: it sets attributes of them, or hands them to a call."""
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        of_others = {
            node.func for node in ast.walk(statement) if isinstance(node, ast.Call) and self._patches_another(node)
        }
        for node in ast.walk(statement):
            changed: list[ast.AST] = []
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                changed = [node]
            elif isinstance(node, ast.Call):
                changed = [*node.args, *(keyword.value for keyword in node.keywords)]
            elif isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in MAGIC and node not in of_others:
                yield "*"
            names = (n.id for part in changed for n in ast.walk(part) if isinstance(n, ast.Name))
            yield from (name for name in names if not name.startswith("__"))

    def _patches_another(self, call: ast.Call) -> bool:
        """`setattr(torch, "name", ...)`: an attribute of a module that was imported, and is not this one."""
        is_setattr = isinstance(call.func, ast.Name) and call.func.id == "setattr" and bool(call.args)
        target = call.args[0] if is_setattr else None
        if not isinstance(target, ast.Name) or target.id in self.definitions:
            return False
        imported = ".".join(part for part in self.imports.get(target.id, ()) if part)
        return bool(imported) and imported.partition(".")[0] != self.name.partition(".")[0]

    def is_uncertain(self, name: str) -> bool:
        return name in self.uncertain or "*" in self.uncertain

    def binds(self, name: str) -> bool:
        return name in self.definitions or name in self.imports or self.is_uncertain(name)

    def definition(self, dotted: str) -> ast.stmt | None:
        """The definition of `Class.method` or of `function`."""
        name, _, member = dotted.partition(".")
        found = self.definitions.get(name)
        if not member or not isinstance(found, ast.ClassDef):
            return None if member else found
        return next((s for s in found.body if isinstance(s, ast.FunctionDef) and s.name == member), None)


@dataclass
class Sources:
    """The modules of a tree, each parsed once."""

    tree: Tree
    _modules: dict[str, Module | None] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """A module by its dotted name, or None where the tree has no such file."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        base = name.replace(".", "/")
        for path in (f"{base}.py", f"{base}/__init__.py"):
            text = self.tree.read(path)
            if text is not None:
                return Module(name, path, text)
        return None


def imported_by(statement: ast.Import | ast.ImportFrom, importer: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local names that an import statement binds."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            yield alias.asname or alias.name, (_absolute(statement, importer), alias.name)
        elif alias.asname:
            yield alias.asname, (alias.name, "")
        else:
            package = alias.name.partition(".")[0]
            yield package, (package, "")


def _absolute(statement: ast.ImportFrom, importer: str) -> str:
    if not statement.level:
        return statement.module or ""
    package = importer.split(".")[: -statement.level]
    return ".".join([*package, statement.module] if statement.module else package)


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """All names that a statement binds in the scope where it stands, whatever its form; "*" if it may bind any."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif not isinstance(node, ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


MAGIC = frozenset({"exec", "eval", "setattr", "delattr", "globals", "vars", "locals", "__import__"})


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _imported_plainly(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names} - {"*"}


def _defined_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None
    ):
        yield statement.target.id
