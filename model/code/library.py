"""What builtins and library modules mean. What is not here is not understood.

The adapter of a server adds its own modules (torch's tensors, configuration); here is what any Python code uses.
"""

from __future__ import annotations

import ast
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError, RaisedError
from kvproof.model.code.paths import Paths
from kvproof.model.code.values import (
    Bound,
    Class,
    Elements,
    Function,
    Identity,
    Instance,
    Known,
    Library,
    Opaque,
    StandIn,
    Text,
    chosen,
)
from kvproof.model.symbolic import Symbols


class Run(Protocol):
    """What a builtin asks of the interpreter that calls it (`objects.py`)."""

    d: Symbols
    paths: Paths
    made: list[Instance]

    def truth(self, value: Any, node: ast.expr) -> bool: ...
    def elements(self, value: Any) -> list[Any]: ...
    def attribute(self, value: Any, name: str) -> Any: ...
    def attribute_or(self, value: Any, name: str, default: Any) -> Any: ...
    def attribute_of_class(self, kind: Class, receiver: Any, name: str) -> Any: ...
    def has_attribute(self, value: Any, name: str) -> bool: ...
    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any: ...
    def key(self, value: Any) -> Any: ...
    def known_key(self, table: Mapping[Any, Any], key: Any) -> Any: ...
    def key_set(self, values: list[Any]) -> set[Any]: ...
    def noted(self, made: Instance) -> Instance: ...
    def construct(self, kind: Class, arguments: list[Any], keywords: dict[str, Any]) -> Any: ...


NO_DEFAULT = object()
NOWHERE = ast.Constant(value=None)
"""Of a question that a builtin asks: it has no place of its own in the code."""


def _len(run: Run, value: Any) -> Any:
    if isinstance(value, StandIn):
        return value.length()
    if isinstance(value, (list, tuple, dict, set)):
        return len(value)
    if isinstance(value, Instance) and value.kind.member("__len__"):
        return run.call(run.attribute_of_class(value.kind, value, "__len__"), [], {})
    raise NotUnderstoodError("the length of this value")


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(run: Run, *values: Any, default: Any = NO_DEFAULT) -> Any:
        numbers = run.elements(values[0]) if len(values) == 1 else list(values)
        if not numbers and default is not NO_DEFAULT:
            return default
        if not numbers:
            raise RaisedError("ValueError")
        if not all(arithmetic.is_number(number) for number in numbers):
            raise NotUnderstoodError("the smallest or largest of values that are no numbers")
        return pick(run.d, numbers)

    return extreme


def _sum(run: Run, values: Any, start: Any = 0) -> Any:
    total: Any = start
    for value in run.elements(values):
        if not arithmetic.is_number(value):
            value = int(run.paths.decide(value)) if arithmetic.is_flag(value) else value
        total = arithmetic.add(run.d, total, int(value) if isinstance(value, bool) else value)
    return total


def _any(run: Run, values: Any) -> bool:
    return any(run.truth(value, NOWHERE) for value in run.elements(values))


def _all(run: Run, values: Any) -> bool:
    return all(run.truth(value, NOWHERE) for value in run.elements(values))


def _isinstance(run: Run, value: Any, kinds: Any) -> bool:
    return any(_is_of(run, value, kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def _is_of(run: Run, value: Any, kind: Any) -> bool:
    if isinstance(kind, Class):
        if any(base in ("typing.Protocol", "abc.ABC") for base in kind.bases):
            raise NotUnderstoodError(f"whether a value is a {kind.name}, which may go by its methods")
        if isinstance(value, Instance):
            if any(c.has_unknown_base() for c in value.kind.ancestors):
                raise NotUnderstoodError(f"whether a {value.kind.name} is a {kind.name}")
            return kind in value.kind.ancestors
        if isinstance(value, StandIn):
            return _is_described_as(value, kind.name)
        return _is_not_of_the_tree(value)
    if isinstance(kind, Known) and isinstance(value, StandIn):
        return _is_described_as(value, kind.name)
    if isinstance(kind, Known) and kind.name in PYTHON_TYPES:
        if arithmetic.is_flag(value):
            return kind.name in ("bool", "int")
        if arithmetic.is_number(value):
            return kind.name == "int"
        if isinstance(value, Instance):
            if any(c.has_unknown_base() for c in value.kind.ancestors):
                raise NotUnderstoodError(f"whether a {value.kind.name} is a {kind.name}")
            return value.kind.is_named_tuple and kind.name == "tuple"
        return _is_not_of_the_tree(value) or isinstance(value, PYTHON_TYPES[kind.name])
    raise NotUnderstoodError("whether a value is of this class")


def _is_not_of_the_tree(value: Any) -> bool:
    """False for Python's own values, which are of no class of the tree."""
    if value is None or isinstance(value, (str, list, tuple, dict, set, Class, Function, Bound, Known)):
        return False
    if arithmetic.is_number(value) or arithmetic.is_flag(value):
        return False
    raise NotUnderstoodError("of which class this value is")


def _is_described_as(value: StandIn, name: str) -> bool:
    if isinstance(value, Opaque) and not isinstance(value, Text):
        raise NotUnderstoodError(f"whether {value.what} is a {name}")
    return name in value.classes or (isinstance(value, Text) and name == "str")


def _getattr(run: Run, value: Any, name: Any, default: Any = NO_DEFAULT) -> Any:
    if not isinstance(name, str):
        raise NotUnderstoodError("an attribute whose name is computed")
    if default is NO_DEFAULT:
        return run.attribute(value, name)
    return run.attribute_or(value, name, default)


def _hasattr(run: Run, value: Any, name: Any) -> bool:
    if not isinstance(name, str):
        raise NotUnderstoodError("an attribute whose name is computed")
    return run.has_attribute(value, name)


def _int(value: Any = 0) -> Any:
    if arithmetic.is_number(value):
        return int(value) if isinstance(value, bool) else value
    raise NotUnderstoodError("int() of something that is no integer")


def _bool(run: Run, value: Any = False) -> bool:
    return run.truth(value, NOWHERE)


def _range(*bounds: Any) -> Elements:
    if all(isinstance(bound, int) for bound in bounds):
        numbers = range(*bounds)
        if len(numbers) <= LONGEST_LOOP:
            return Elements(list(numbers))
    raise NotUnderstoodError("a loop whose number of rounds is not known, or is large")


def _enumerate(run: Run, values: Any, start: int = 0) -> Elements:
    return Elements(list(enumerate(run.elements(values), start)), values, once=True)


def _zip(run: Run, *collections: Any, strict: Any = False) -> Elements:
    if len(collections) > 1 and any(isinstance(c, Elements) and c.once for c in collections):
        raise NotUnderstoodError("how far zip() consumes an iterator")
    elements = [run.elements(c) for c in collections]
    if strict is not False and len(set(map(len, elements))) > 1:
        raise NotUnderstoodError("zip() of collections of different lengths, which raises where it is iterated over")
    return Elements(list(zip(*elements, strict=False)), once=True)


def _iter(run: Run, values: Any) -> Elements:
    return Elements(run.elements(values), values, once=True)


def _next(run: Run, values: Any) -> Any:
    if not isinstance(values, Elements) or not values.once:
        raise NotUnderstoodError("next() of something that is no iterator")
    found = values.elements()
    if not found:
        raise RaisedError("StopIteration")
    return found[0]


def _id(run: Run, value: Any) -> Identity:
    """Objects that are there before the code runs have different ids, for good."""
    if not isinstance(value, Instance) or any(value is made for made in run.made):
        raise NotUnderstoodError("the id() of this value")
    return Identity(id(value))


LONGEST_LOOP = 16
PYTHON_TYPES: Mapping[str, type] = {
    "int": int,
    "str": str,
    "bool": bool,
    "list": list,
    "array": array,
    "dict": dict,
    "tuple": tuple,
    "set": set,
}

# Of these the interpreter itself is the first argument.
ASKING: Mapping[str, Callable[..., Any]] = {
    "len": _len,
    "min": _extreme(arithmetic.smallest),
    "max": _extreme(arithmetic.largest),
    "sum": _sum,
    "any": _any,
    "all": _all,
    "isinstance": _isinstance,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "bool": _bool,
    "enumerate": _enumerate,
    "zip": _zip,
    "list": lambda run, values=(): run.elements(values),
    "tuple": lambda run, values=(): tuple(run.elements(values)),
    "set": lambda run, values=(): run.key_set(run.elements(values)),
    "iter": _iter,
    "next": _next,
    "dict": lambda run, **items: dict(items),
    "id": _id,
}
PLAIN: Mapping[str, Callable[..., Any]] = {
    "int": _int,
    "range": _range,
    "slice": lambda start, stop, step=None: slice(start, stop, step),
    "print": lambda *_, **__: None,
    "str": lambda value="", *_: value if isinstance(value, str) else Text("a string"),
    "repr": lambda *_: Text("a string"),
}


def _no_result(*_: Any, **__: Any) -> None:
    return None


class Logger(StandIn):
    """Logging changes nothing."""

    members = frozenset({"debug", "info", "warning", "error", "exception", "critical"})

    def attribute(self, name: str) -> Any:
        return Known(name, _no_result, prints=True) if name in self.members else super().attribute(name)


def _copy(run: Run, value: Any) -> Any:
    """A shallow copy."""
    if isinstance(value, Instance):
        if any(map(value.kind.member, COPIES)):
            raise NotUnderstoodError(f"a copy of a {value.kind.name}, which says itself how it is copied")
        return run.noted(Instance(value.kind, dict(value.fields), value.absent))
    if value is None or isinstance(value, (list, dict)):
        return value.copy() if value is not None else None
    raise NotUnderstoodError("a copy of this value")


def _replace(run: Run, value: Any, /, **changes: Any) -> Any:
    """`dataclasses.replace`: a new object with the fields of another, some of them changed."""
    if not isinstance(value, Instance) or value.kind.member("__init__") or value.kind.member("__post_init__"):
        raise NotUnderstoodError("the replacement of fields of this value")
    fields = {name: chosen(kept) for name, kept in value.fields.items()}
    return run.construct(value.kind, [], {**fields, **changes})


COPIES = ("__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__")


def _no_array(*_: Any) -> Any:
    raise NotUnderstoodError("an array is made")


def _opaque(what: str) -> Known:
    return Known(what, lambda *_, **__: Opaque(what))


LIBRARY: Mapping[str, Library] = {
    "builtins": Library(
        "builtins",
        {name: Known(name, call, name in ("print", "str", "repr")) for name, call in {**ASKING, **PLAIN}.items()}
        | {"NotImplementedError": Known("NotImplementedError", _no_result), "object": "object"},
    ),
    "logging": Library(
        "logging",
        {"getLogger": Known("getLogger", lambda *_: Logger()), "warning": Known("warning", _no_result, prints=True)},
    ),
    "time": Library("time", {name: _opaque(f"time.{name}()") for name in ("monotonic", "time", "perf_counter")}),
    "array": Library("array", {"array": Known("array", _no_array)}),
    "copy": Library("copy", {"copy": Known("copy.copy", _copy)}),
    "typing": Library("typing", {"TYPE_CHECKING": False, "cast": Known("cast", lambda _, value: value)}),
    "dataclasses": Library(
        "dataclasses",
        {"dataclass": Known("dataclass", _no_result), "replace": Known("dataclasses.replace", _replace)},
    ),
}


def _append(run: Run, values: list[Any], value: Any) -> None:
    values.append(value)


def _extend(run: Run, values: list[Any], more: Any) -> None:
    values.extend(run.elements(more))


def _pop_place(run: Run, values: list[Any], place: Any = -1) -> Any:
    if type(place) is not int:
        raise NotUnderstoodError("a pop at a place that is no plain number")
    if not -len(values) <= place < len(values):
        raise RaisedError("IndexError")
    return values.pop(place)


def _sort(run: Run, values: list[Any], *, key: Any = None, reverse: Any = False) -> None:
    """Of at most one element, where there is nothing to compare."""
    if len(values) > 1:
        raise NotUnderstoodError("the order of several values")
    for value in values if key is not None else ():
        run.call(key, [value], {})


def _pop_item(run: Run, table: dict[Any, Any]) -> tuple[Any, Any]:
    """The pair that came in last."""
    if not table:
        raise RaisedError("KeyError")
    return table.popitem()


def _pop(run: Run, table: dict[Any, Any], key: Any, default: Any = NO_DEFAULT) -> Any:
    known = run.known_key(table, key)
    if known not in table and default is NO_DEFAULT:
        raise RaisedError("KeyError")
    return table.pop(known, default)


METHODS: Mapping[tuple[type, str], Callable[..., Any]] = {
    (str, "split"): lambda run, text, sep=None, maxsplit=-1: text.split(sep, maxsplit),
    (list, "append"): _append,
    (list, "extend"): _extend,
    (list, "clear"): lambda run, values: values.clear(),
    (list, "pop"): _pop_place,
    (list, "sort"): _sort,
    (list, "copy"): lambda run, values: list(values),
    (dict, "get"): lambda run, table, key, default=None: table.get(run.known_key(table, key), default),
    (dict, "pop"): _pop,
    (dict, "popitem"): _pop_item,
    (dict, "values"): lambda run, table: Elements(list(table.values()), table),
    (dict, "keys"): lambda run, table: Elements(list(table), table),
    (dict, "items"): lambda run, table: Elements(list(table.items()), table),
    (dict, "clear"): lambda run, table: table.clear(),
    (set, "add"): lambda run, values, value: values.add(run.key(value)),
}
