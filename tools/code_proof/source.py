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
        for statement in _with_branches(self.tree.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                found.update(imported_by(statement, self.name))
        return found

    @cached_property
    def rebound(self) -> frozenset[str]:
        """Names that are bound or changed by other top-level statements than a definition: nobody can tell what they are."""
        found: set[str] = set()
        for statement in self.tree.body:
            found.update(_changed_by(statement))
        return frozenset(found)

    def binds(self, name: str) -> bool:
        return name in self.definitions or name in self.imports or name in self.rebound

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


def _with_branches(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, and those of `if TYPE_CHECKING` and `try` at the top level."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            yield from _with_branches(statement.body)


MAGIC = frozenset({"exec", "eval", "setattr", "globals", "vars", "locals", "delattr"})


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement changes by a branch, a loop, a deletion, or an attribute that it sets."""
    inner = list(ast.walk(statement))
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return
    is_definition = isinstance(statement, (ast.Assign, ast.AnnAssign))
    for node in inner:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and not is_definition:
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAGIC:
            yield from (n.id for n in inner if isinstance(n, ast.Name))


def _defined_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None
    ):
        yield statement.target.id
