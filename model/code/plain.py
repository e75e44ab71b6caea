"""Expressions that only read and reckon: numbers, flags, fields, arithmetic, comparisons.

Such an expression can be evaluated also where Python would not reach it. So `a and b` is one flag, and `if a: x = b` leaves one
length that depends on `a`, where otherwise the paths would fork.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError, RaisedError
from kvproof.model.code.objects import DEEPEST_CALL, Frame, Objects
from kvproof.model.code.values import Deferred, Function, Instance, Record, StandIn

ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


class NotPlainError(Exception):
    """To evaluate the expression may fork, fail or have an effect."""


def flags(run: Objects, nodes: Sequence[ast.expr]) -> list[Any] | None:
    """The values of expressions that are all plain and all flags; else None."""
    found = []
    for node in nodes:
        found.append(value(run, node))
        if not arithmetic.is_flag(found[-1]):
            return None
    return found


def value(run: Objects, node: ast.expr) -> Any:
    """A number or a flag; None where the expression is not plain."""
    try:
        return _value(run, node)
    except (NotPlainError, NotUnderstoodError, RaisedError):
        return None


def _value(run: Objects, node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int()):
            return node.value
        case ast.Name(id=name):
            return _known(run.frame.names.get(name))
        case ast.Attribute():
            return _known(_field(run, node))
        case ast.UnaryOp(op=ast.USub()):
            return arithmetic.negative(run.d, _number(run, node.operand))
        case ast.BinOp():
            return run.operate(type(node.op), _number(run, node.left), _number(run, node.right), node)
        case ast.Compare(ops=[operator], comparators=[right]) if isinstance(operator, ORDERS):
            return run.compare(operator, _number(run, node.left), _number(run, right))
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _called(run, run.name(name), [_number(run, argument) for argument in node.args])
    raise NotPlainError


def _known(found: Any) -> Any:
    if arithmetic.is_number(found) or arithmetic.is_flag(found):
        return found
    raise NotPlainError


def _number(run: Objects, node: ast.expr) -> Any:
    found = _value(run, node)
    if arithmetic.is_number(found):
        return found
    raise NotPlainError  # a flag in arithmetic forks


def _field(run: Objects, node: ast.Attribute) -> Any:
    """A field that is read, by no property and no choice."""
    owner = _object(run, node.value)
    if isinstance(owner, Instance):
        _, defined = owner.kind.member(node.attr) or (None, None)
        fields, is_field = owner.fields, isinstance(defined, ast.AnnAssign | None)
    elif isinstance(owner, StandIn):
        fields = owner.fields if isinstance(owner, Record) else vars(owner)
        is_field = type(owner).attribute in (StandIn.attribute, Record.attribute)
    else:
        raise NotPlainError
    if not is_field or node.attr not in fields or isinstance(fields[node.attr], Deferred):
        raise NotPlainError
    return run.attribute(owner, node.attr)


def _object(run: Objects, node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return run.frame.names.get(node.id)
    if isinstance(node, ast.Attribute):
        return _field(run, node)
    raise NotPlainError


def _called(run: Objects, function: Any, arguments: list[Any]) -> Any:
    """`min`, `max`, and a function of the code that is one plain expression of its arguments."""
    builtins = run.library["builtins"].members
    if len(arguments) > 1 and function in (builtins["min"], builtins["max"]):
        return run.call(function, arguments, {})
    if not isinstance(function, Function) or not isinstance(function.node, ast.FunctionDef):
        raise NotPlainError
    function.module.was_read.add(function.node)
    match function.node:
        case ast.FunctionDef(
            args=ast.arguments(posonlyargs=[], vararg=None, kwonlyargs=[], kwarg=None),
            decorator_list=[],
            body=[ast.Return(value=ast.expr() as result)],
        ) if len(function.node.args.args) == len(arguments) and len(run.frames) < DEEPEST_CALL:
            names = dict(zip((a.arg for a in function.node.args.args), arguments, strict=True))
            run.frames.append(Frame(function.module, function, names, parent=function.scope))
            try:
                return _value(run, result)
            finally:
                run.frames.pop()
    raise NotPlainError
