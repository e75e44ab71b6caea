"""The meaning of Python's expressions over symbolic numbers. What is missing here is not understood."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import z3

from kvproof.model.code import arithmetic, plain
from kvproof.model.code.errors import NotUnderstoodError, Place, RaisedError
from kvproof.model.code.library import LONGEST_LOOP
from kvproof.model.code.objects import Objects
from kvproof.model.code.values import (
    Bound,
    Class,
    Elements,
    Function,
    Instance,
    Known,
    Opaque,
    StandIn,
    Text,
    is_of_dictionary,
    same_objects,
    snapshot,
)
from kvproof.model.symbolic import PagedLength

ARITHMETIC: Mapping[type[ast.operator], Callable[..., Any]] = {
    ast.Add: arithmetic.add,
    ast.Sub: arithmetic.subtract,
    ast.Mult: arithmetic.multiply,
    ast.FloorDiv: arithmetic.floor_divide,
    ast.Mod: arithmetic.remainder,
}


class Expressions(Objects):
    """Evaluates a node in the frame on top of the stack."""

    def evaluate(self, node: ast.expr) -> Any:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise NotUnderstoodError(
                f"an expression of the kind {type(node).__name__}", self.place(node), ast.unparse(node)
            )
        try:
            return method(node)
        except NotUnderstoodError as unknown:
            # The innermost expression is the one to name.
            if unknown.place is None:
                unknown.place, unknown.expression = self.place(node), ast.unparse(node)
            raise
        except RaisedError as raised:
            raised.place = raised.place or self.place(node)
            raise

    def truth(self, value: Any, node: ast.expr) -> bool:
        """Whether the code takes the value as true: the paths fork where both can be."""
        if isinstance(value, z3.BoolRef):
            return self.paths.decide(value, self.place(node), ast.unparse(node))
        if value is None or isinstance(value, (bool, int, str, list, tuple, dict, set)):
            return bool(value)
        if arithmetic.is_number(value):
            return not self.paths.decide(arithmetic.equal(self.d, value, 0), self.place(node), ast.unparse(node))
        if isinstance(value, Instance) and not (value.kind.member("__bool__") or value.kind.member("__len__")):
            return True
        if isinstance(value, (Function, Bound, Class)):
            return True
        if isinstance(value, StandIn) and not isinstance(value, Opaque):
            return self.truth(value.truth(), node)
        raise NotUnderstoodError("the truth of this value", self.place(node), ast.unparse(node))

    def place(self, node: ast.AST) -> Place:
        return Place(self.frame.module.path, getattr(node, "lineno", 0))

    def bind(self, target: ast.expr, value: Any) -> None:
        raise NotImplementedError

    # Names and literals.

    def _Constant(self, node: ast.Constant) -> Any:
        if node.value is None or isinstance(node.value, (bool, int, str)):
            return node.value
        raise NotUnderstoodError(f"a constant of the type {type(node.value).__name__}")

    def _Name(self, node: ast.Name) -> Any:
        return self.name(node.id)

    def _JoinedStr(self, node: ast.JoinedStr) -> Any:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.refuse_printing([self.evaluate(part.value)])
                if part.format_spec is not None:
                    self.evaluate(part.format_spec)
        return Text(ast.unparse(node))

    def _List(self, node: ast.List) -> list[Any]:
        return self._unpacked(node.elts)

    def _Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._unpacked(node.elts))

    def _Set(self, node: ast.Set) -> set[Any]:
        return self.key_set(self._unpacked(node.elts))

    def _Dict(self, node: ast.Dict) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.update(self._python_dict(self.evaluate(value)))
            else:
                known = self.known_key(found, self.evaluate(key))
                found[known] = self.evaluate(value)
        return found

    def _unpacked(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred) and isinstance(node.value, ast.GeneratorExp):
                found += self._comprehended(node.value)  # taken in full before anything else happens
            elif isinstance(node, ast.Starred):
                found += self.elements(self.evaluate(node.value))
            else:
                found.append(self.evaluate(node))
        return found

    def _python_dict(self, value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise NotUnderstoodError("keywords from something other than a dictionary")
        return value

    # Operators.

    def _BinOp(self, node: ast.BinOp) -> Any:
        return self.operate(type(node.op), self.evaluate(node.left), self.evaluate(node.right), node)

    def operate(self, operator: type[ast.operator], left: Any, right: Any, node: ast.expr | ast.stmt) -> Any:
        left, right = self._as_number(left, node), self._as_number(right, node)
        if arithmetic.is_number(left) and arithmetic.is_number(right) and operator in ARITHMETIC:
            if operator in (ast.FloorDiv, ast.Mod) and isinstance(right, int) and right == 0:
                raise RaisedError("ZeroDivisionError")
            return ARITHMETIC[operator](self.d, left, right)
        if operator is ast.Add and isinstance(left, str | Text) and isinstance(right, str | Text):
            return Text("a joined string")
        if operator is ast.Add and isinstance(left, list) and isinstance(right, list):
            return left + right
        if operator is ast.Add and isinstance(left, tuple) and isinstance(right, tuple):
            return left + right
        if operator is ast.Mult and isinstance(left, list) and isinstance(right, int) and right <= LONGEST_LOOP:
            return left * right
        found = NotImplemented
        if isinstance(left, StandIn):
            found = left.operated(operator.__name__, right)
        if found is NotImplemented and isinstance(right, StandIn):
            found = right.operated_from_right(operator.__name__, left)
        if found is NotImplemented:
            raise NotUnderstoodError(f"the operator {operator.__name__} on these values")
        return found

    def _as_number(self, value: Any, node: ast.expr | ast.stmt) -> Any:
        """A flag is 0 or 1 in arithmetic."""
        if isinstance(value, z3.BoolRef):
            return int(self.paths.decide(value, self.place(node), ast.unparse(node)))
        return int(value) if isinstance(value, bool) else value

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return z3.Not(value) if isinstance(value, z3.BoolRef) else not self.truth(value, node.operand)
        number = self._as_number(value, node.operand)
        if isinstance(node.op, ast.USub) and arithmetic.is_number(number):
            return arithmetic.negative(self.d, number)
        raise NotUnderstoodError(f"the operator {type(node.op).__name__} on this value")

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        stops_at = isinstance(node.op, ast.Or)
        for number, operand in enumerate(node.values[:-1], 1):
            value = self.evaluate(operand)
            if isinstance(value, z3.BoolRef) and (others := plain.flags(self, node.values[number:])) is not None:
                return z3.Or(value, *others) if stops_at else z3.And(value, *others)
            if self.truth(value, operand) == stops_at:
                return stops_at if isinstance(value, z3.BoolRef) else value
        return self.evaluate(node.values[-1])

    def _IfExp(self, node: ast.IfExp) -> Any:
        flag = self.evaluate(node.test)
        either = self.either(flag, node.body, node.orelse)
        return self.evaluate(node.body if self.truth(flag, node.test) else node.orelse) if either is None else either

    def either(self, flag: Any, then: ast.expr, otherwise: ast.expr) -> PagedLength | None:
        """Of two plain lengths the one that an unknown flag says; else None. Integers of Python stay integers."""
        if not isinstance(flag, z3.BoolRef):
            return None
        lengths = [plain.value(self, node) for node in (then, otherwise)]
        return self.d.where(flag, *lengths) if all(isinstance(length, PagedLength) for length in lengths) else None

    def _Compare(self, node: ast.Compare) -> Any:
        left = self.evaluate(node.left)
        operators = list(zip(node.ops, node.comparators, strict=True))
        for number, (operator, comparator) in enumerate(operators):
            right = self.evaluate(comparator)
            flag = self.compare(operator, left, right)
            if number == len(operators) - 1:
                return flag
            if not self.truth(flag, node):
                return False
            left = right
        raise NotUnderstoodError("a comparison of nothing")

    def compare(self, operator: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(operator, (ast.NotEq, ast.IsNot, ast.NotIn, ast.GtE, ast.LtE)):
            flag = self._compared(OPPOSITE[type(operator)], left, right)
            if isinstance(flag, StandIn):
                return flag.opposite()
            return z3.Not(flag) if isinstance(flag, z3.BoolRef) else not flag
        return self._compared(type(operator), left, right)

    def _compared(self, operator: type[ast.cmpop], left: Any, right: Any) -> Any:
        if operator is ast.Is:
            return self.is_same(left, right)
        if operator is ast.In:
            return self.contains(right, left)
        if operator is ast.Eq:
            return self.is_equal(left, right)
        if not (arithmetic.is_number(left) and arithmetic.is_number(right)):
            raise NotUnderstoodError("an order of values that are no numbers")
        if operator is ast.Gt:
            left, right = right, left
        return arithmetic.less(self.d, left, right)

    # Access.

    def _Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute(self.evaluate(node.value), node.attr)

    def _Subscript(self, node: ast.Subscript) -> Any:
        return self.item(self.evaluate(node.value), self.evaluate(node.slice))

    def _Slice(self, node: ast.Slice) -> slice:
        bounds = (node.lower, node.upper, node.step)
        return slice(*(self.evaluate(bound) if bound is not None else None for bound in bounds))

    def _NamedExpr(self, node: ast.NamedExpr) -> Any:
        function = self.frame.function
        if self.frame.is_comprehension or (function is not None and isinstance(function.node, ast.Lambda)):
            raise NotUnderstoodError("a name that is bound inside of a comprehension or a lambda")
        value = self.evaluate(node.value)
        self.frame.names[node.target.id] = value
        return value

    def _Lambda(self, node: ast.Lambda) -> Function:
        return Function(node, self.frame.module, None, self.frame)

    # Calls.

    def _Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return self.super_of_frame()
        function = self.evaluate(node.func)
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and not node.keywords:
            return self._consumed(function, node.args[0])
        arguments = self._unpacked(node.args)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            more = {keyword.arg: value} if keyword.arg else self._python_dict(value)
            if more.keys() & keywords.keys():
                raise NotUnderstoodError("a keyword that is given twice")
            keywords.update(more)
        return self.call(function, arguments, keywords)

    # Comprehensions.

    def _ListComp(self, node: ast.ListComp) -> list[Any]:
        return self._comprehended(node)

    def _SetComp(self, node: ast.SetComp) -> set[Any]:
        return self.key_set(self._comprehended(node))

    def _DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
        found: dict[Any, Any] = {}
        for key, value in self._comprehended(ast.ListComp(pair, node.generators)):
            found[self.known_key(found, key)] = value
        return found

    def _GeneratorExp(self, node: ast.GeneratorExp) -> list[Any]:
        raise NotUnderstoodError("a generator that is not consumed where it stands")

    def _consumed(self, function: Any, node: ast.GeneratorExp) -> Any:
        """A builtin takes all elements of a generator at once, or, `any`, `all` and `next`, up to one."""
        if isinstance(function, Known) and function.extends is not None:
            self._comprehended(node, into=function.extends)
            return None
        builtins = self.library["builtins"].members
        name = next((name for name in CONSUMERS if function is builtins.get(name)), None)
        if name is None:
            raise NotUnderstoodError("a generator that is handed on")
        values = self._comprehended(node, CONSUMERS[name])
        return self.call(function, [Elements(values, once=True) if name == "next" else values], {})

    def _comprehended(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp,
        last: bool | str | None = None,
        into: list[Any] | None = None,
    ) -> list[Any]:
        """The elements up to the first whose truth is `last`; all of them for None. `into`: the list that they are added to."""
        if any(generator.is_async for generator in node.generators):
            raise NotUnderstoodError("an asynchronous comprehension")
        found: list[Any] = [] if into is None else into
        iterated = self.evaluate(node.generators[0].iter)
        with self.nested_scope():
            self._gather(node, node.generators, iterated, found, last)
        return found

    def _gather(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp,
        generators: list[ast.comprehension],
        iterated: Any,
        found: list[Any],
        last: bool | str | None,
    ) -> bool:
        """Adds the elements for the first of the generators and those inside of it. Whether they are enough."""
        generator, *inner = generators
        for element in self.unchanged(iterated):
            self.bind(generator.target, element)
            if not all(self.truth(self.evaluate(test), test) for test in generator.ifs):
                continue
            if inner:
                if self._gather(node, inner, self.evaluate(inner[0].iter), found, last):
                    return True
                continue
            value = self.evaluate(node.elt)
            if isinstance(last, bool):
                value = self.truth(value, node.elt)
            found.append(value)
            if last == "first" or (isinstance(last, bool) and value == last):
                return True
        return False

    def unchanged(self, iterated: Any) -> Iterator[Any]:
        """The elements of a collection, one after the other, while nobody changes it."""
        before, elements = snapshot(iterated), self.elements(iterated)
        size = len(elements) if is_of_dictionary(iterated) else 0
        for number, element in enumerate(elements, 1):
            yield element
            now = snapshot(iterated)
            if size and len(now) == len(before):  # what was under the keys that are behind may have changed
                now[size : size + number] = before[size : size + number]
            if not same_objects(before, now):
                raise NotUnderstoodError("a loop over a collection that the loop changes")


CONSUMERS: Mapping[str, bool | str | None] = {
    **dict.fromkeys(("sum", "min", "max", "list", "tuple", "set")),
    "any": True,
    "all": False,
    "next": "first",
}


OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
}
