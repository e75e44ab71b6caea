"""An edit of a syntax tree, and what is common to edits of any language of rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


@dataclass(frozen=True)
class Edit:
    """Set `name` of `node` to `value`; `original` and `mutated` say it as text, `line` and `column` where."""

    operator: str
    node: Any
    name: str
    value: Any
    original: str
    mutated: str
    line: int
    column: int


@contextmanager
def applied(edit: Edit) -> Iterator[None]:
    before = getattr(edit.node, edit.name)
    setattr(edit.node, edit.name, edit.value)
    try:
        yield
    finally:
        setattr(edit.node, edit.name, before)


def flipped(node: ast.Compare) -> Iterator[Edit]:
    """`<` for `<=` and back; the opposite of an equality."""
    op = node.ops[0]
    at = (node.lineno, node.col_offset)
    left, right = text_of(node.left), text_of(node.comparators[0])
    if type(op) in COMPARISONS:
        other = COMPARISONS[type(op)]()
        text = text_of(ast.Compare(node.left, [other], node.comparators))
        yield Edit("flip comparison", node, "ops", [other], text_of(node), text, *at)
    elif isinstance(op, ast.Eq | ast.NotEq):
        # Terms have no `!=` of their own, so the equality is made of the same parts in a way that both domains have.
        flipped = ast.NotEq() if isinstance(op, ast.Eq) else ast.Eq()
        sign = "!=" if isinstance(op, ast.Eq) else "=="
        yield Edit("flip comparison", node, "ops", [flipped], text_of(node), f"{left} {sign} {right}", *at)


def with_element(value: Any, index: int | None, new: ast.expr) -> Any:
    return new if index is None else [*value[:index], new, *value[index + 1 :]]


def called(node: ast.AST) -> str:
    """Name of the function that a call calls; empty where it is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def name_field(function: ast.expr) -> str:
    return "id" if isinstance(function, ast.Name) else "attr"


def place_of(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def text_of(node: ast.AST) -> str:
    return ast.unparse(node)
