"""Runs a function of the code under proof on one path: the meaning of Python's statements."""

from __future__ import annotations

import ast
import builtins
from functools import cache
from typing import Any

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError, Place, RaisedError
from kvproof.model.code.expressions import Expressions
from kvproof.model.code.library import LONGEST_LOOP
from kvproof.model.code.objects import Frame, Raisable
from kvproof.model.code.source import bound_at, imported_by, text_of
from kvproof.model.code.values import Function, Known, StandIn, Text

MOST_STATEMENTS = 5_000


class _ReturnError(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _BreakError(Exception):
    pass


class _ContinueError(Exception):
    pass


class Interpreter(Expressions):
    """One run of one function. `lines` are the places of the statements that ran, in order; `values` what they set: the number
    of the line, the target's text and the number or flag."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.lines: list[Place] = []
        self.values: list[tuple[int, str, Any]] = []

    def run_body(self, function: Function, frame: Frame) -> Any:
        node = function.node
        if isinstance(node, ast.FunctionDef):
            function.module.was_read.add(node)
            frame.local = _local_names(node)
        self.frames.append(frame)
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body)
            self.execute(node.body)
        except _ReturnError as returned:
            return returned.value
        finally:
            self.frames.pop()
        return None

    def execute(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.lines.append(self.place(statement))
            if len(self.lines) > MOST_STATEMENTS:
                raise NotUnderstoodError(f"more than {MOST_STATEMENTS} statements", self.place(statement))
            method = getattr(self, f"_{type(statement).__name__}", None)
            if method is None:
                kind = type(statement).__name__
                raise NotUnderstoodError(f"a statement of the kind {kind}", self.place(statement), kind)
            try:
                method(statement)
            except NotUnderstoodError as unknown:
                if unknown.place is None:
                    unknown.place, unknown.expression = self.place(statement), ast.unparse(statement).partition("\n")[0]
                raise
            except RaisedError as raised:
                raised.place = raised.place or self.place(statement)
                raise

    # Simple statements.

    def _Pass(self, node: ast.Pass) -> None:
        pass

    def _Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)

    def _Return(self, node: ast.Return) -> None:
        raise _ReturnError(self.evaluate(node.value) if node.value is not None else None)

    def _Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.bind(target, value)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = self._changed(self.name(target.id), node)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value)
            self.set_attribute(owner, target.attr, self._changed(self.attribute(owner, target.attr), node))
        else:
            raise NotUnderstoodError("an item that is changed in place")

    def _changed(self, old: Any, node: ast.AugAssign) -> Any:
        """`+=` on a list changes the list that others hold, too."""
        if isinstance(old, list) and isinstance(node.op, ast.Add):
            old.extend(self.elements(self.evaluate(node.value)))
            return old
        if isinstance(old, StandIn) and not isinstance(old, Text) and isinstance(node.op, ast.Add):
            return old.added_in_place(self.evaluate(node.value))
        if not (arithmetic.is_number(old) or arithmetic.is_flag(old) or isinstance(old, (str, Text, tuple))):
            raise NotUnderstoodError("an object that is changed in place")
        return self.operate(type(node.op), old, self.evaluate(node.value), node)

    def bind(self, target: ast.expr, value: Any) -> None:
        if not isinstance(target, (ast.Tuple, ast.List)) and (arithmetic.is_number(value) or arithmetic.is_flag(value)):
            self.values.append((self._number_of(self.place(target)), text_of(target), value))
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.evaluate(target.value), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self.set_item(self.evaluate(target.value), self.evaluate(target.slice), value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._bind_each(target.elts, self.elements(value))
        else:
            raise NotUnderstoodError(f"an assignment to {ast.unparse(target)}")

    def _number_of(self, place: Place) -> int:
        """Of the last statement at this place: what it called has run since."""
        return next((n for n in reversed(range(len(self.lines))) if self.lines[n] == place), len(self.lines) - 1)

    def _bind_each(self, targets: list[ast.expr], values: list[Any]) -> None:
        if any(isinstance(target, ast.Starred) for target in targets):
            raise NotUnderstoodError("an assignment to a starred name")
        if len(targets) != len(values):
            raise RaisedError("ValueError")
        for target, value in zip(targets, values, strict=True):
            self.bind(target, value)

    def _Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                raise NotUnderstoodError(f"the deletion of {ast.unparse(target)}")
            self.delete_item(self.evaluate(target.value), self.evaluate(target.slice))

    def _Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for local, (module, name) in imported_by(node, self.frame.module.package):
            self.frame.names[local] = self.imported(module, name)

    _ImportFrom = _Import

    def _FunctionDef(self, node: ast.FunctionDef) -> None:
        self.frame.names[node.name] = self.decorated(Function(node, self.frame.module, None, self.frame))

    # Branches and loops.

    def _If(self, node: ast.If) -> None:
        flag = self.evaluate(node.test)
        if not self._assigns_either(node, flag):
            self.execute(node.body if self.truth(flag, node.test) else node.orelse)

    def _assigns_either(self, node: ast.If, flag: Any) -> bool:
        """`if flag: x = length`, where `x` has a length already: it is one of the two, and the paths need not fork."""
        match node:
            case ast.If(body=[ast.Assign(targets=[ast.Name() as target]) as statement], orelse=[]):
                length = self.either(flag, statement.value, target)
                if length is not None:
                    self.values.append((len(self.lines) - 1, text_of(node.test), flag))
                    self.lines.append(self.place(statement))
                    self.bind(target, length)
                return length is not None
        return False

    def _For(self, node: ast.For) -> None:
        for element in self.unchanged(self.evaluate(node.iter)):
            self.bind(node.target, element)
            try:
                self.execute(node.body)
            except _ContinueError:
                continue
            except _BreakError:
                return
        self.execute(node.orelse)

    def _While(self, node: ast.While) -> None:
        for _ in range(LONGEST_LOOP):
            if not self.truth(self.evaluate(node.test), node.test):
                self.execute(node.orelse)
                return
            try:
                self.execute(node.body)
            except _ContinueError:
                continue
            except _BreakError:
                return
        raise NotUnderstoodError(f"a loop of more than {LONGEST_LOOP} rounds")

    def _Break(self, node: ast.Break) -> None:
        raise _BreakError

    def _Continue(self, node: ast.Continue) -> None:
        raise _ContinueError

    # Exceptions.

    def _Assert(self, node: ast.Assert) -> None:
        if not self.truth(self.evaluate(node.test), node.test):
            if node.msg is not None:
                self.evaluate(node.msg)
            raise RaisedError("AssertionError", self.place(node))

    def _Raise(self, node: ast.Raise) -> None:
        if node.exc is None:
            raise NotUnderstoodError("a raise without an exception")
        if not isinstance(node.cause, ast.Constant | ast.Name | None):
            raise NotUnderstoodError("an exception from an expression")
        value = self.evaluate(node.exc)
        if isinstance(value, Raisable):
            raise RaisedError(value.name, self.place(node), value)
        if isinstance(value, Text | Known) and isinstance(node.exc, (ast.Call, ast.Name)):
            named = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(named, ast.Name) and self.is_builtin(named.id):
                raise RaisedError(named.id, self.place(node))
        raise NotUnderstoodError("what is raised")

    def _Try(self, node: ast.Try) -> None:
        try:
            self._with_handlers(node)
        except (RaisedError, _ReturnError, _BreakError, _ContinueError):
            self.execute(node.finalbody)
            raise
        self.execute(node.finalbody)

    def _with_handlers(self, node: ast.Try) -> None:
        try:
            self.execute(node.body)
        except RaisedError as raised:
            for handler in node.handlers:
                if self._handles(handler, raised):
                    if handler.name:
                        self.frame.names[handler.name] = Text("an exception")
                    try:
                        self.execute(handler.body)
                    finally:
                        self.frame.names.pop(handler.name or "", None)
                    return
            raise
        self.execute(node.orelse)

    def _handles(self, handler: ast.ExceptHandler, raised: RaisedError) -> bool:
        if handler.type is None:
            return True
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        return any(self._is_raised(kind, raised) for kind in kinds)

    def _is_raised(self, kind: ast.expr, raised: RaisedError) -> bool:
        named = ast.unparse(kind)
        caught = getattr(builtins, named, None) if self.is_builtin(named) else None
        thrown = getattr(builtins, raised.name, None) if raised.value is None else None
        if isinstance(caught, type) and isinstance(thrown, type):
            return issubclass(thrown, caught)
        raise NotUnderstoodError("whether this handler catches the exception")

    def is_builtin(self, name: str) -> bool:
        """Whether the name means what Python has by it, here."""
        scope: Frame | None = self.frame
        while scope is not None:
            if name in scope.names or name in scope.local:
                return False
            scope = scope.parent
        return not self.frame.module.binds(name)


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)


def _own_nodes(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function without those of scopes inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if isinstance(node, SCOPES):
            continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


@cache
def _local_names(function: ast.FunctionDef) -> frozenset[str]:
    """Names that are local to a function because it binds them somewhere. Raises NotUnderstoodError for a generator."""
    found: set[str] = set()
    for node in _own_nodes(function):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            raise NotUnderstoodError(f"{function.name} is a generator")
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            raise NotUnderstoodError(f"{function.name} binds names outside of itself")
        found.update(bound_at(node))
        if isinstance(node, COMPREHENSIONS):
            found.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
    return frozenset(found)
