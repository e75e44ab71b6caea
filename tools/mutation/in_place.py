"""A mutated function put in the place of the right one, in this process only: its code object is exchanged.

So everything that holds the function, classes and the instances made of them, runs the mutated one from then on. A process does
this once, in a fork that then ends.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from mutation.mistakes import Accused, Function, Numbers


def module_of(accused: Accused) -> ModuleType:
    return importlib.import_module(accused.module)


def source_of(accused: Accused) -> str:
    return Path(str(module_of(accused).__file__)).read_text(encoding="utf-8")


def live_function(accused: Accused, name: str, function: Function) -> FunctionType:
    """The function object that runs: behind a property, a static method or a decorator that keeps it."""
    owner: Any = module_of(accused)
    *classes, last = name.split(".")
    for each in classes:
        owner = vars(owner)[each]
    line = _first_line(function)
    for found in _behind(vars(owner)[last]):
        if found.__code__.co_firstlineno == line:
            return found
    raise LookupError(f"{accused.path}: no function {name} at line {line}")


def mutated_code(function: FunctionType, node: Function, tree: ast.Module) -> CodeType:
    """Compiled from the module's tree, so that it is what an import of a mutated file would give."""
    needs_class = "__class__" in function.__code__.co_freevars
    if needs_class:  # what a closure holds must stay the same, also where `super()` was dropped
        node.body.append(ast.fix_missing_locations(ast.parse("if False:\n    __class__").body[0]))
    try:
        whole = compile(tree, function.__code__.co_filename, "exec", dont_inherit=True)
    finally:
        if needs_class:
            node.body.pop()
    line = _first_line(node)
    return next(code for code in _codes(whole) if code.co_name == node.name and code.co_firstlineno == line)


def is_same(one: CodeType, other: CodeType) -> bool:
    """Whether the two do the same instructions on the same constants and names; lines apart."""
    if _plain(one) != _plain(other) or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def exchange(function: FunctionType, code: CodeType, numbers: Numbers, twins: dict[str, Any]) -> None:
    for name, value in {**twins, **numbers.names}.items():
        function.__globals__.setdefault(name, value)
    function.__code__ = code


def lines_of(files: set[str], run: Callable[[], object]) -> set[tuple[str, int]]:
    """The lines of these files that the run comes to, in this thread."""
    met: set[tuple[str, int]] = set()

    def local(frame: FrameType, event: str, argument: object) -> Any:
        met.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def of_call(frame: FrameType, event: str, argument: object) -> Any:
        return local if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        run()
    finally:
        sys.settrace(before)
    return met


def _first_line(node: Function) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _behind(found: Any) -> Iterator[FunctionType]:
    if isinstance(found, FunctionType):
        yield found
    for name in ("fget", "fset", "__func__", "func", "__wrapped__"):
        inner = getattr(found, name, None)
        if inner is not None:
            yield from _behind(inner)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _plain(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount
