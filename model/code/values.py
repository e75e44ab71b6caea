"""Values of the code under proof that are neither numbers nor Python's own."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar

from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.source import Module, bound_by


@dataclass(eq=False)
class Function:
    """A function of the code; `owner` is the class that it is a method of, `scope` the frame that it was defined in."""

    node: ast.FunctionDef | ast.Lambda
    module: Module
    owner: Class | None = None
    scope: Any = None

    @property
    def name(self) -> str:
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "<lambda>"


@dataclass(eq=False)
class Bound:
    """A method with its object."""

    function: Function
    receiver: Any


@dataclass(eq=False)
class Class:
    """A class of the code. `bases` that the tree does not hold are kept by name only."""

    node: ast.ClassDef
    module: Module
    bases: tuple[Class | str, ...]

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def ancestors(self) -> tuple[Class, ...]:
        """The class and its bases, depth first. Raises NotUnderstoodError where Python's order would be another one."""
        above = (base.ancestors for base in self.bases if isinstance(base, Class))
        found = (self, *(one for base in above for one in base))
        if len(set(map(id, found))) < len(found):
            raise NotUnderstoodError(f"{self.name} has one base by two ways")
        return found

    def member(self, name: str) -> tuple[Class, ast.stmt] | None:
        """The definition of a method or class attribute, and the class that has it."""
        for ancestor in self.ancestors:
            for statement in _binders(ancestor.node).get(name, ()):
                if name in _names(statement) and not _is_setter(statement):
                    return ancestor, statement
                if name in _names_otherwise(statement):
                    raise NotUnderstoodError(f"how the member {name!r} of {ancestor.name} is bound")
            if ancestor.has_unknown_base():
                raise NotUnderstoodError(f"whether a base of {ancestor.name} has the member {name!r}")
        return None

    def setter(self, name: str) -> tuple[Class, ast.FunctionDef] | None:
        """The function below `@name.setter`."""
        found = self.member(name)
        for statement in found[0].node.body if found else ():
            if isinstance(statement, ast.FunctionDef) and statement.name == name and _is_setter(statement):
                return found[0] if found else self, statement
        return None

    def binds(self, name: str) -> bool:
        """Whether the body of the class itself binds the name: there it hides the module's."""
        return name in _binders(self.node)

    @property
    def is_named_tuple(self) -> bool:
        return any("typing.NamedTuple" in c.bases for c in self.ancestors)

    def has_unknown_base(self) -> bool:
        return any(isinstance(base, str) and base not in HARMLESS_BASES for base in self.bases)


# Bases that add no attribute which code of a cache reads, by where they are defined.
HARMLESS_BASES = frozenset(
    {"builtins.object", "abc.ABC", "typing.Protocol", "typing.Generic", "typing.NamedTuple"}
    | {
        f"builtins.{name}"
        for name, found in vars(builtins).items()
        if isinstance(found, type) and issubclass(found, BaseException)
    }
)


@dataclass(eq=False)
class Instance:
    """An object of a class of the code. Attributes that nobody set, and that the class does not define, are not understood."""

    kind: Class
    fields: dict[str, Any] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    """Attributes that the object is known not to have: `getattr` with a default gives the default."""


class Deferred:
    """The value of an attribute that is chosen when it is read first: a choice that nobody asks for makes no paths."""

    def __init__(self, choose: Callable[[], Any]) -> None:
        self._choose = choose

    @cached_property
    def value(self) -> Any:
        return self._choose()


def chosen(value: Any) -> Any:
    return value.value if isinstance(value, Deferred) else value


class StandIn:
    """An object of the server that is described, not interpreted. The code may use only the attributes in `members`.

    A method of it is an ordinary Python method that takes and gives values of the code. `classes` are the names that `isinstance`
    finds.
    """

    members: ClassVar[frozenset[str]] = frozenset()
    classes: ClassVar[frozenset[str]] = frozenset()

    def attribute(self, name: str) -> Any:
        if name not in self.members:
            raise NotUnderstoodError(f"{type(self).__name__} has no description of its attribute {name!r}")
        return getattr(self, name)

    def has(self, name: str) -> bool:
        if name not in self.members:
            raise NotUnderstoodError(f"whether {type(self).__name__} has an attribute {name!r} is not described")
        return True

    def set_attribute(self, name: str, value: Any) -> None:
        raise NotUnderstoodError(f"attribute {name!r} of {type(self).__name__} is set")

    def item(self, key: Any) -> Any:
        raise NotUnderstoodError(f"an item of {type(self).__name__} is read")

    def set_item(self, key: Any, value: Any) -> None:
        raise NotUnderstoodError(f"an item of {type(self).__name__} is set")

    def delete_item(self, key: Any) -> None:
        raise NotUnderstoodError(f"an item of {type(self).__name__} is deleted")

    def truth(self) -> Any:
        """Of a collection it is that of its length."""
        return self.length()

    def contains(self, item: Any) -> Any:
        raise NotUnderstoodError(f"membership in {type(self).__name__} is asked")

    def length(self) -> Any:
        raise NotUnderstoodError(f"the length of {type(self).__name__} is asked")

    def equals(self, other: Any) -> Any:
        """Whether `self == other`, or NotImplemented."""
        return NotImplemented

    def opposite(self) -> Any:
        """Of what `==` gave: what `!=` gives."""
        raise NotUnderstoodError("the opposite of a comparison that gives no flag")

    def operated(self, operator: str, right: Any) -> Any:
        """`self operator right`, by the name of the operator's node ("Add"), or NotImplemented."""
        return NotImplemented

    def operated_from_right(self, operator: str, left: Any) -> Any:
        """`left operator self`, or NotImplemented."""
        return NotImplemented

    def added_in_place(self, right: Any) -> Any:
        """`self += right`: what the target is from then on."""
        raise NotUnderstoodError(f"{type(self).__name__} is changed in place")

    def elements(self) -> list[Any]:
        raise NotUnderstoodError(f"{type(self).__name__} is iterated over")


@dataclass(frozen=True)
class Identity(StandIn):
    """What `id()` gives of an object: a number that only its own `id()` equals."""

    number: int


class Opaque(StandIn):
    """A value that is only handed on: a name, a clock's time, an object without meaning for pages. It is not None."""

    def __init__(self, what: str) -> None:
        self.what = what


class Text(Opaque):
    """A string whose characters nobody looks at."""


class Name(Opaque):
    """A name of which one thing is known: it is not the same as any other `Name`."""


class Elements(StandIn):
    """What `values()`, `zip()`, `iter()` and the like give. `source`: the collection whose elements they are.

    An iterator is consumed by its first use. A collection that changes in between is not understood.
    """

    def __init__(self, values: list[Any], source: Any = None, *, once: bool = False) -> None:
        self.values, self.source, self.once, self.is_used = values, source, once, False
        self.then = snapshot(source)

    def elements(self) -> list[Any]:
        if self.is_used:
            raise NotUnderstoodError("an iterator that is used again")
        if not same_objects(self.then, snapshot(self.source)):
            raise NotUnderstoodError("an iterator over a collection that has changed")
        self.is_used = self.once
        return list(self.values)

    def length(self) -> Any:
        if self.once:
            raise NotUnderstoodError("the length or the truth of an iterator")
        return len(self.elements())


def snapshot(collection: Any) -> list[Any]:
    """The elements that a collection of Python has now: keys and values of a dictionary."""
    if isinstance(collection, Elements):
        return snapshot(collection.source)
    if isinstance(collection, dict):
        return [*collection, *collection.values()]
    return list(collection) if isinstance(collection, (list, tuple, set)) else []


def is_of_dictionary(collection: Any) -> bool:
    return isinstance(collection.source if isinstance(collection, Elements) else collection, dict)


def same_objects(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))


class Record(StandIn):
    """An object with plain attributes, all of which are given. The code may set them, and no others."""

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Any] = fields

    def attribute(self, name: str) -> Any:
        if name not in self.fields:
            raise NotUnderstoodError(f"the attribute {name!r} is not described")
        return chosen(self.fields[name])

    def has(self, name: str) -> bool:
        self.attribute(name)
        return True

    def set_attribute(self, name: str, value: Any) -> None:
        self.attribute(name)
        self.fields[name] = value


@dataclass(frozen=True)
class Known:
    """A function of a library, whose meaning is given in Python."""

    name: str
    call: Callable[..., Any]
    prints: bool = False
    """It makes text of its arguments: `__str__` and the like of an object run."""
    extends: list[Any] | None = None
    """It is the `extend` of this list, which takes what a generator gives one by one."""


@dataclass(frozen=True)
class Library:
    """A module that is not part of the tree: what is known of it by name."""

    name: str
    members: Mapping[str, Any]


@cache
def _binders(node: ast.ClassDef) -> Mapping[str, tuple[ast.stmt, ...]]:
    """The statements of a class body by the names that they bind, the last first."""
    found: dict[str, tuple[ast.stmt, ...]] = {}
    for statement in reversed(node.body):
        for name in bound_by(statement):
            found[name] = (*found.get(name, ()), statement)
    return found


def _names(statement: ast.stmt) -> tuple[str, ...]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return (statement.name,)
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return (statement.target.id,) if statement.value is not None else ()
    if isinstance(statement, ast.Assign):
        return tuple(target.id for target in statement.targets if isinstance(target, ast.Name))
    return ()


def _names_otherwise(statement: ast.stmt) -> set[str]:
    """Names that a statement of a class body binds in another way than `_names` knows: by a branch, an import, a tuple."""
    declared = isinstance(statement, ast.AnnAssign) and statement.value is None
    return set() if declared else set(bound_by(statement) - {*_names(statement)})


def _is_setter(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    setters = [d for d in statement.decorator_list if isinstance(d, ast.Attribute) and d.attr == "setter"]
    for setter in setters:
        if not isinstance(setter.value, ast.Name) or setter.value.id != statement.name or len(setters) > 1:
            raise NotUnderstoodError(f"the decorator {ast.unparse(setter)} of {statement.name}")
    return bool(setters)
