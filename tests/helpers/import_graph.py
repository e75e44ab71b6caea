"""The imports of the package, read from its files: which module imports which, on which line, and whether at once or later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import layout_drawing
from layout_drawing import ROOT, Module, known

OPTIONAL = {
    *("torch", "triton", "numpy", "numba", "pyarrow", "orjson", "hypothesis", "ray", "cvc5", "prometheus_client"),
    *("pytest", "sglang", "sgl_jax", "jax"),
    "z3",  # a dependency, but an environment that records or judges may lack it
}
"""Packages of the extras: whatever imports one cannot be imported everywhere."""


@dataclass(frozen=True)
class Import:
    """`at_once`: when the module is loaded; else in a function, or for a type checker only. `target`: a module of any package."""

    path: Path
    importer: str
    line: int
    target: str
    at_once: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.target}"


@cache
def modules() -> dict[str, Module]:
    """Every module of the package, by its dotted name."""
    return layout_drawing.modules(ROOT)


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """Everything that a module imports, in the order of its lines."""
    path = modules()[module].path
    return tuple(Import(path, module, *found) for found in _imports(modules()[module].tree, at_once=True))


def _imports(node: ast.AST, *, at_once: bool) -> Iterator[tuple[int, str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            for alias in child.names:
                yield child.lineno, known(f"{child.module}.{alias.name}", modules()) or child.module, at_once
        else:
            is_later = isinstance(child, ast.FunctionDef | ast.Lambda) or _is_for_types(child)
            yield from _imports(child, at_once=at_once and not is_later)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def needing_an_option() -> frozenset[str]:
    """Modules that cannot be loaded, or only slowly, where a package of `OPTIONAL` is missing."""
    needing: set[str] = set()
    before = -1
    while before != len(needing):
        before = len(needing)
        for module in modules():
            at_once = {found.target for found in imports_of(module) if found.at_once}
            if at_once & needing or {target.partition(".")[0] for target in at_once} & OPTIONAL:
                needing.add(module)
    return frozenset(needing)


def reached_from(starts: Iterable[str]) -> frozenset[str]:
    """All modules that these import, at once or later, and those that they name: tables that are loaded lazily hold names."""
    reached: set[str] = set()
    frontier = list(starts)
    while frontier:
        module = frontier.pop()
        if module not in reached and module in modules():
            reached.add(module)
            frontier += [module.rpartition(".")[0], *(found.target for found in imports_of(module)), *_named_in(module)]
    return frozenset(reached)


def _named_in(module: str) -> Iterator[str]:
    """`"kvproof.impl.scenarios"`, `"from kvproof.conformance.cli.program import main"`: what strings name, docstrings apart."""
    tree = modules()[module].tree
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"kvproof(?:\.\w+)+", node.value)
