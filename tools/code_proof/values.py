"""Values of the code under proof that are neither numbers nor Python's own."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from code_proof.errors import NotUnderstoodError
from code_proof.source import Module, bound_by


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

    def ancestors(self) -> list[Class]:
        """The class and its bases, depth first. Raises NotUnderstoodError where Python's order would be another one."""
        found: list[Class] = [self]
        for base in self.bases:
            found += base.ancestors() if isinstance(base, Class) else []
        if len(set(map(id, found))) < len(found):
            raise NotUnderstoodError(f"{self.name} has one base by two ways")
        return found

    def member(self, name: str) -> tuple[Class, ast.stmt] | None:
        """The definition of a method or class attribute, and the class that has it."""
        for ancestor in self.ancestors():
            for statement in reversed(ancestor.node.body):
                if name in _names(statement) and not _is_setter(statement):
                    return ancestor, statement
                if name in _names_otherwise(statement):
                    raise NotUnderstoodError(f"how the member {name!r} of {ancestor.name} is bound")
            if ancestor.has_unknown_base():
                raise NotUnderstoodError(f"whether a base of {ancestor.name} has the member {name!r}")
        return None

    def setter(self, name: str) -> tuple[Class, ast.FunctionDef] | None:
        """The function below `@name.setter`."""
        for ancestor in self.ancestors():
            for statement in ancestor.node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name and _is_setter(statement):
                    return ancestor, statement
        return None

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

    def contains(self, item: Any) -> Any:
        raise NotUnderstoodError(f"membership in {type(self).__name__} is asked")

    def length(self) -> Any:
        raise NotUnderstoodError(f"the length of {type(self).__name__} is asked")

    def operated(self, operator: str, right: Any) -> Any:
        """`self operator right`, by the name of the operator's node ("Add"), or NotImplemented."""
        return NotImplemented

    def operated_from_right(self, operator: str, left: Any) -> Any:
        """`left operator self`, or NotImplemented."""
        return NotImplemented

    def elements(self) -> list[Any]:
        raise NotUnderstoodError(f"{type(self).__name__} is iterated over")


class Opaque(StandIn):
    """A value that is only handed on: a name, a clock's time, an object without meaning for pages. It is not None."""

    def __init__(self, what: str) -> None:
        self.what = what


class Text(Opaque):
    """A string whose characters nobody looks at."""


class Record(StandIn):
    """An object with plain attributes, all of which are given. The code may set them, and no others."""

    def __init__(self, **fields: Any) -> None:
        self.fields: dict[str, Any] = fields

    def attribute(self, name: str) -> Any:
        if name not in self.fields:
            raise NotUnderstoodError(f"the attribute {name!r} is not described")
        return self.fields[name]

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


@dataclass(frozen=True)
class Library:
    """A module that is not part of the tree: what is known of it by name."""

    name: str
    members: Mapping[str, Any]


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
    return set() if declared else {*bound_by(statement)} - {*_names(statement)}


def _is_setter(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in statement.decorator_list)
