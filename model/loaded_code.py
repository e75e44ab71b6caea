"""A digest of what a function does as it is loaded now: its code, and everything that the code reaches by name.

Files do not say what runs: a module may have been patched after its import, or come from an old `.pyc`. So the objects themselves
are read: code, constants, defaults, closures, the globals that code names, members of classes, entries of tables. What
the standard library and the packages of others do follows from their names; their versions are the caller's part.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from functools import cache, cached_property, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    UnionType,
)
from typing import Any, TypeVar

OF_OTHERS = frozenset({*sys.stdlib_module_names, "z3", "pydantic"})
"""Packages whose functions and classes stand for themselves."""
NOT_RUN = frozenset(
    {"__annotations__", "__dict__", "__doc__", "__module__", "__weakref__", "__firstlineno__", "__static_attributes__"}
    | {"__dataclass_params__"}
    | {"__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__match_args__"}
)
"""Members of a class that say nothing about what its methods do."""
PLAIN = (int, float, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
DESCRIPTORS = (type(str.join), type(str.__len__), GetSetDescriptorType, MemberDescriptorType)
"""Kinds of methods and fields that are written in C, and slots: what they do follows from their class and name."""


class NotReadableError(Exception):
    """An object is reached of which nobody can say here what it does. So nothing may be kept by this digest."""


def digest_of(*roots: Any) -> str:
    """Of functions, and of data that decide what they do. Raises NotReadableError."""
    seen: dict[int, tuple[int, Any]] = {}  # by id its number, and the object: an id is its own while the object lives
    digest, waiting = hashlib.sha256(), [*reversed(roots)]
    parts: list[Any]
    while waiting:
        found = waiting.pop()
        if isinstance(found, PLAIN):
            said, parts = f"{type(found).__name__} {found!r}", []
        elif id(found) in seen:
            said, parts = f"again {seen[id(found)][0]}", []
        else:
            seen[id(found)] = len(seen), found
            said, parts = _described(found)
        text = said.encode("utf-8", "surrogatepass")
        digest.update(b"%d %d:" % (len(text), len(parts)) + text)
        waiting.extend(reversed(parts))
    return digest.hexdigest()


def _described(found: Any) -> tuple[str, list[Any]]:
    """What kind of thing it is, in words that tell it apart; and the parts that decide what it does."""
    kind = type(found)
    if kind is FunctionType:
        return _function(found)
    if isinstance(found, type):
        return _class(found)
    if isinstance(found, (list, tuple, range)):
        return kind.__name__, [kind, *found]
    if isinstance(found, Mapping):
        return kind.__name__, [kind, *(part for item in found.items() for part in item)]
    if isinstance(found, (set, frozenset)):
        return kind.__name__, sorted(map(digest_of, found))
    if kind in PARTS:
        return kind.__name__, PARTS[kind](found)
    if isinstance(found, ModuleType):
        is_ours = not _is_of_others(found.__name__)
        return f"module {found.__name__}", list(_items(vars(found))) if is_ours else []
    if hasattr(found, "__wrapped__"):  # a function that keeps its results
        return kind.__name__, [found.__wrapped__]
    if isinstance(found, (BuiltinFunctionType, *DESCRIPTORS)):
        name: str = getattr(found, "__qualname__")  # noqa: B009  # mypy does not know it of descriptors
        return f"{name} of {getattr(found, '__module__', None)}", [getattr(found, "__self__", None)]
    if hasattr(found, "__dict__"):
        return "object", [kind, *_items(vars(found))]
    raise NotReadableError(f"an object of {kind.__module__}.{kind.__qualname__}")


PARTS: dict[type, Callable[[Any], list[Any]]] = {
    MethodType: lambda method: [method.__func__, method.__self__],
    partial: lambda call: [call.func, call.args, call.keywords],
    property: lambda of: [of.fget, of.fset, of.fdel],
    cached_property: lambda of: [of.func],
    staticmethod: lambda of: [of.__func__],
    classmethod: lambda of: [of.__func__],
    SimpleNamespace: lambda space: list(_items(vars(space))),
    Field: lambda field: [field.name, field.default, field.default_factory, field.metadata],
    UnionType: lambda union: list(union.__args__),
    GenericAlias: lambda alias: [alias.__origin__, *alias.__args__],
    TypeVar: lambda variable: [variable.__name__],
}


def _function(found: FunctionType) -> tuple[str, list[Any]]:
    text, names = _text_of(found.__code__)
    if _is_of_others(found.__module__):
        return f"{found.__qualname__} of {found.__module__} {text}", []
    space = found.__globals__
    named = [part for name in names if name in space for part in (name, space[name])]
    cells = [_content(cell) for cell in found.__closure__ or ()]
    return f"function {text}", [found.__defaults__, found.__kwdefaults__, cells, *named]


def _class(found: type) -> tuple[str, list[Any]]:
    name = f"class {found.__qualname__} of {found.__module__}"
    if _is_of_others(found.__module__):
        return name, []
    members = {name: value for name, value in vars(found).items() if name not in NOT_RUN}
    return name, [*found.__mro__[1:], *_items(members)]


@cache
def _text_of(code: CodeType) -> tuple[str, tuple[str, ...]]:
    """What the code does, and the names that it reads, also in the functions inside it."""
    nested = [_text_of(part) for part in code.co_consts if isinstance(part, CodeType)]
    constants = [digest_of(part) for part in code.co_consts if not isinstance(part, CodeType)]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    handlers = getattr(code, "co_exceptiontable", b"")
    text = repr((code.co_code, counts, names, handlers, constants, [text for text, _ in nested]))
    read = dict.fromkeys([*code.co_names, *(name for _, names in nested for name in names)])
    return hashlib.sha256(text.encode()).hexdigest(), tuple(read)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _items(members: Mapping[str, Any]) -> Iterator[Any]:
    for name in sorted(members):
        yield from (name, members[name])


def _is_of_others(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in OF_OTHERS
