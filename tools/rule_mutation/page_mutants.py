"""Mutants of what effects mean for pages (`model/pages.py`, `model/window_map.py`): small mistakes in formulas of Z3.

The kinds of mistakes are those of the rules (`mutants.py`); the functions of Z3 have other names than those of a domain, and a
formula is a row of equations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rule_mutation.edits import COMPARISONS, Edit, called, flipped, name_field, place_of, text_of, with_element

SWAPPED = {"FREE": "TREE", "FIRST": "LAST"}
SWAPPED |= {b: a for a, b in SWAPPED.items()}
AND_OR = {"And": "Or", "Or": "And"}
Scope = ast.FunctionDef | ast.Lambda
MACHINERY = frozenset({"state", "window_state"})
"""Names of arrays; no formula."""


def page_rules(tree: ast.Module) -> Iterator[tuple[str, Scope]]:
    """Every function outside of classes and every lambda, but no pattern: a pattern only tells the solver where to look."""
    for top in tree.body:
        if isinstance(top, ast.FunctionDef) and top.name not in MACHINERY:
            patterns = {
                id(call.args[2])
                for call in ast.walk(top)
                if isinstance(call, ast.Call) and called(call) == "all" and len(call.args) == 3
            }
            for node in ast.walk(top):
                if isinstance(node, ast.FunctionDef):
                    yield top.name if node is top else f"{top.name}.{node.name}", node
                elif isinstance(node, ast.Lambda) and id(node) not in patterns:
                    yield f"{top.name} at each", node


def page_edits(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        if not isinstance(node.ops[0], ast.Is | ast.IsNot):
            yield from flipped(node)
            yield from _bound_moved(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield from _moved(node, "slice", node.slice, None)
    elif isinstance(node, ast.Name) and node.id in SWAPPED and isinstance(node.ctx, ast.Load):
        yield Edit("swap twin", node, "id", SWAPPED[node.id], node.id, SWAPPED[node.id], *place_of(node))
    elif isinstance(node, ast.List):
        for i, formula in enumerate(node.elts):
            rest = node.elts[:i] + node.elts[i + 1 :]
            yield Edit("drop condition", node, "elts", rest, text_of(formula), "(dropped)", *place_of(formula))


def _of_call(node: ast.Call) -> Iterator[Edit]:
    name, at = called(node), place_of(node)
    if name in AND_OR:
        mutated = text_of(node).replace(name, AND_OR[name], 1)
        yield Edit("swap every/some", node.func, name_field(node.func), AND_OR[name], text_of(node), mutated, *at)
        for i, operand in enumerate(node.args if len(node.args) > 1 else ()):
            rest = node.args[:i] + node.args[i + 1 :]
            yield Edit("drop operand", node, "args", rest, text_of(operand), "(dropped)", *place_of(operand))
    elif name in ("Implies", "If"):
        opposite = ast.Call(ast.Attribute(ast.Name("z3", ast.Load()), "Not", ast.Load()), [node.args[0]], [])
        negated = with_element(node.args, 0, opposite)
        said = text_of(node.args[0])
        yield Edit("negate condition", node, "args", negated, said, f"z3.Not({said})", *place_of(node.args[0]))
    elif name == "Not":
        value = with_element(node.args, 0, ast.Call(node.func, [node.args[0]], []))
        yield Edit("negate condition", node, "args", value, text_of(node), text_of(node.args[0]), *at)
    elif name == "Store":
        yield from _moved(node, "args", node.args[2], 2)
        yield from _moved(node, "args", node.args[1], 1)
    elif name == "named":
        yield from _moved(node, "args", node.args[2], 2)
    elif name == "same":
        for i, argument in enumerate(node.args):
            if isinstance(argument, ast.Constant):
                rest = node.args[:i] + node.args[i + 1 :]
                yield Edit("drop update", node, "args", rest, text_of(argument), "(dropped)", *place_of(argument))


def _bound_moved(node: ast.Compare) -> Iterator[Edit]:
    """Of `a < b` and `a <= b` the bound that the other comparison does not give."""
    if type(node.ops[0]) not in COMPARISONS:
        return
    sign: ast.operator = ast.Add() if isinstance(node.ops[0], ast.LtE | ast.Gt) else ast.Sub()
    bound = node.comparators[0]
    moved = ast.BinOp(bound, sign, ast.Constant(1))
    yield Edit("off by one", node, "comparators", [moved], text_of(bound), text_of(moved), *place_of(bound))


def _moved(node: ast.AST, field: str, number: ast.expr, index: int | None) -> Iterator[Edit]:
    """The place behind."""
    if isinstance(number, ast.Constant) and not (isinstance(number.value, int) and not isinstance(number.value, bool)):
        return
    if isinstance(number, ast.Tuple | ast.Slice) or text_of(number) in ("row", "True"):
        return
    moved = ast.BinOp(number, ast.Add(), ast.Constant(1))
    value = with_element(getattr(node, field), index, moved)
    yield Edit("off by one", node, field, value, text_of(number), text_of(moved), *place_of(number))
