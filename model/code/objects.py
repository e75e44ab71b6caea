"""Objects of the code under proof: attributes, items, membership, calls and construction."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import NoneType
from typing import Any

from kvproof.model.code import arithmetic
from kvproof.model.code.errors import NotUnderstoodError, RaisedError
from kvproof.model.code.library import ASKING, METHODS
from kvproof.model.code.paths import Paths
from kvproof.model.code.source import Module, Sources, text_of
from kvproof.model.code.values import (
    Bound,
    Class,
    Function,
    Identity,
    Instance,
    Known,
    Library,
    Name,
    Opaque,
    StandIn,
    Text,
    chosen,
)
from kvproof.model.symbolic import Symbols

DEEPEST_CALL = 40


@dataclass
class Frame:
    """The names of a call that runs. `local` are those that the function assigns somewhere: until then they are unbound."""

    module: Module
    function: Function | None
    names: dict[str, Any] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    parent: Frame | None = None
    is_comprehension: bool = False


@dataclass
class Definitions:
    """What modules define, found out once for all paths of a function: it must not depend on the state."""

    names: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Functions, classes and constants by module and name. Other values belong to one run."""
    classes: dict[tuple[str, str], Class] = field(default_factory=dict)
    understood: set[tuple[str, str]] = field(default_factory=set)
    """Of the classes those that do nothing which the proof does not see."""


OF_ALL_RUNS = (Function, Class, str, int, NoneType)


class Objects:
    """What expressions and statements do with objects. `names` and `library` give values to imported names."""

    def __init__(
        self,
        d: Symbols,
        sources: Sources,
        paths: Paths,
        given: Mapping[str, Any],
        library: Mapping[str, Any],
        definitions: Definitions | None = None,
    ) -> None:
        self.d, self.sources, self.paths = d, sources, paths
        self.given, self.library = given, library
        self.frames: list[Frame] = []
        self.made: list[Instance] = []
        """Objects that the code under proof made, not its caller."""
        self._globals: dict[tuple[str, str], Any] = {}
        self._definitions = definitions if definitions is not None else Definitions()
        self._giving_back: set[ast.expr] = set()
        """Decorators that were run and gave the function back."""

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    # What expressions and statements define (`expressions.py`, `interpreter.py`).

    def evaluate(self, node: ast.expr) -> Any:
        raise NotImplementedError

    def run_body(self, function: Function, frame: Frame) -> Any:
        raise NotImplementedError

    def truth(self, value: Any, node: ast.expr) -> bool:
        raise NotImplementedError

    def operate(self, operator: type[ast.operator], left: Any, right: Any, node: ast.expr | ast.stmt) -> Any:
        raise NotImplementedError

    def compare(self, operator: ast.cmpop, left: Any, right: Any) -> Any:
        raise NotImplementedError

    # Names.

    def name(self, name: str) -> Any:
        _refuse_private(name)
        scope: Frame | None = self.frame
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            if name in scope.local:
                raise RaisedError("UnboundLocalError")
            scope = scope.parent
        return self.global_name(self.frame.module, name)

    def global_name(self, module: Module, name: str) -> Any:
        given = self.given.get(f"{module.name}.{name}", MISSING)
        if given is not MISSING:
            return given
        self.sources.used.add((module.name, name))
        of_all, key = self._definitions.names, (module.name, name)
        if key in of_all:
            return of_all[key]
        if key not in self._globals:
            with self._without_choice(f"{name!r} of {module.name}"):
                self._globals[key] = self._defined(module, name)
            if isinstance(self._globals[key], OF_ALL_RUNS):
                of_all[key] = self._globals[key]
        return self._globals[key]

    @contextmanager
    def _without_choice(self, what: str) -> Iterator[None]:
        """The import of a module comes before the state. Raises NotUnderstoodError where it forks all the same."""
        before = len(self.paths.branches)
        yield
        if len(self.paths.branches) > before:
            raise NotUnderstoodError(f"{what}, which depends on the state")

    def _defined(self, module: Module, name: str) -> Any:
        if module.is_uncertain(name):
            raise NotUnderstoodError(f"what {name!r} of {module.name} is by then")
        statement = module.definitions.get(name)
        if isinstance(statement, ast.FunctionDef):
            return self.decorated(Function(statement, module))
        if isinstance(statement, ast.ClassDef):
            return self.class_of(statement, module)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            with self.scope_of(module):
                made = self.evaluate(statement.value)
            if isinstance(made, (list, dict, set, Instance)):
                raise NotUnderstoodError(f"{name!r} of {module.name}, which may have been changed since the import")
            return made
        if name in module.imports:
            return self.imported(*module.imports[name])
        if name == "__name__":
            return module.name
        if name in self.library["builtins"].members:
            return self.library["builtins"].members[name]
        if _is_exception(name):
            return Known(name, lambda *_, **__: Text(name))
        raise NotUnderstoodError(f"the name {name!r}")

    def imported(self, module_name: str, name: str) -> Any:
        """The value of `from module import name`, or of `import module`."""
        dotted = f"{module_name}.{name}" if name else module_name
        if dotted in self.given:
            return self.given[dotted]
        if module_name in self.library:
            if module_name in OF_PYTHON and self.sources.module(module_name) is not None:
                raise NotUnderstoodError(f"which {module_name} is imported: the tree has one of its own")
            library = self.library[module_name]
            return self.attribute(library, name) if name else library
        module = self.sources.module(module_name)
        if module is not None and name and module.binds(name):
            return self.global_name(module, name)
        if self.sources.module(dotted) is not None:
            return Library(dotted, _Submodule(self, dotted))
        raise NotUnderstoodError(f"the import of {dotted}")

    @contextmanager
    def scope_of(self, module: Module, function: Function | None = None) -> Iterator[None]:
        """Evaluates at the top level of a module."""
        self.frames.append(Frame(module, function))
        try:
            yield
        finally:
            self.frames.pop()

    @contextmanager
    def nested_scope(self) -> Iterator[None]:
        """The scope of a comprehension: its names end with it."""
        self.frames.append(Frame(self.frame.module, self.frame.function, parent=self.frame, is_comprehension=True))
        try:
            yield
        finally:
            self.frames.pop()

    # Classes.

    def class_of(self, node: ast.ClassDef, module: Module) -> Class:
        key, known = (module.name, node.name), self._definitions
        if key not in known.classes:
            if node.keywords:
                raise NotUnderstoodError(f"the class {node.name} with keywords (a metaclass?)")
            for decorator in node.decorator_list:
                is_known = any(is_decorator(module, decorator, name) for name in ("dataclass", "runtime_checkable"))
                if not is_known or _options(decorator) - {"slots", "kw_only", "frozen"}:
                    raise NotUnderstoodError(f"the class decorator {ast.unparse(decorator)}")
            with self._without_choice(f"the class {node.name}"), self.scope_of(module):
                known.classes[key] = Class(node, module, tuple(self._base(base) for base in node.bases))
        found = known.classes[key]
        if key not in known.understood:
            for magic in UNSEEN_METHODS:
                if found.member(magic):
                    raise NotUnderstoodError(f"the class {node.name} defines {magic}")
            with self._without_choice(f"the class {node.name}"):
                for ancestor in found.ancestors:
                    self._refuse_set_name(ancestor)
            known.understood.add(key)
        return found

    def _refuse_set_name(self, kind: Class) -> None:
        """Python calls `__set_name__` of each object that the body of a class binds: it may change the class."""
        for statement in kind.node.body:
            value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
            if value is None or isinstance(value, ast.Constant):
                continue
            for part in (value, *(inner for inner in ast.walk(value) if isinstance(inner, ast.Call))):
                try:
                    with self.scope_of(kind.module):
                        made = self.evaluate(part)
                except (NotUnderstoodError, RaisedError):
                    continue  # of a library: it changes no class that is read
                if isinstance(made, Instance) and made.kind.member("__set_name__"):
                    raise NotUnderstoodError(f"the class {kind.name} has an object that defines __set_name__")

    def _base(self, node: ast.expr) -> Class | str:
        """A class of the tree, or where another base is defined: "abc.ABC"."""
        is_generic = isinstance(node, ast.Subscript)
        node = node.value if isinstance(node, ast.Subscript) else node
        try:
            found = self.evaluate(node)
        except NotUnderstoodError:
            found = None
        if is_generic and isinstance(found, Class) and found.member("__class_getitem__"):
            raise NotUnderstoodError(f"the base {found.name}, which defines __class_getitem__")
        return found if isinstance(found, Class) else defined_at(self.frame.module, node)

    def decorated(self, function: Function) -> Function:
        """A function below decorators that change nothing of what it does."""
        assert isinstance(function.node, ast.FunctionDef)
        decorators = function.node.decorator_list
        if function.scope is not None and decorators:
            raise NotUnderstoodError(f"the decorator of {function.name}, a function inside of another")
        if (
            len({_last(decorator) for decorator in decorators} & {"staticmethod", "classmethod", "property", "setter"})
            > 1
        ):
            raise NotUnderstoodError(f"the decorators of {function.name} together")
        for decorator in decorators:
            if function.owner is not None and isinstance(decorator, ast.Name) and function.owner.binds(decorator.id):
                raise NotUnderstoodError(f"the decorator {decorator.id}, a name of the class {function.owner.name}")
            is_harmless = any(is_decorator(function.module, decorator, name) for name in HARMLESS_DECORATORS)
            if not is_harmless and not self._gives_back(decorator, function):
                raise NotUnderstoodError(f"the decorator {ast.unparse(decorator)} of {function.name}")
        return function

    def _gives_back(self, decorator: ast.expr, function: Function) -> bool:
        """Whether a decorator of the tree is one that gives the very function back. It runs as at import, apart from this run."""
        if decorator not in self._giving_back:
            if function.owner is not None and _uses_name_of(function.owner, decorator):
                return False
            at_import = type(self)(self.d, self.sources, self.paths, self.given, self.library)
            with at_import.scope_of(function.module):
                try:
                    made = at_import.call(at_import.evaluate(decorator), [function], {})
                except RaisedError:
                    return False
            if made is not function:
                return False
            self._giving_back.add(decorator)
        return True

    # Attributes.

    def attribute(self, value: Any, name: str) -> Any:
        _refuse_private(name)
        if isinstance(value, Instance):
            return self._attribute_of_instance(value, name)
        if isinstance(value, StandIn):
            return value.attribute(name)
        if isinstance(value, Library):
            if name not in value.members:
                raise NotUnderstoodError(f"{value.name}.{name}")
            return value.members[name]
        if isinstance(value, Class):
            return self.attribute_of_class(value, value, name)
        if isinstance(value, SuperOf):
            if name == "__init__" and initializes_nothing(value):
                return Known("object.__init__", lambda: None)  # more than no argument is another kind of value
            return self.attribute_of_class(value.cls, value.receiver, name)
        if value is None:
            raise RaisedError("AttributeError")
        method = METHODS.get((type(value), name))
        if method is None:
            raise NotUnderstoodError(f"the attribute {name!r} of a value of the type {type(value).__name__}")
        extends = value if isinstance(value, list) and name == "extend" else None
        return Known(name, lambda *arguments, **keywords: method(self, value, *arguments, **keywords), extends=extends)

    def method(self, kind: Class, name: str) -> Function | None:
        """The function that a class or a base of it defines by this name, if it defines one."""
        owner, node = kind.member(name) or (kind, None)
        if not isinstance(node, ast.FunctionDef):
            return None
        return self.decorated(Function(node, owner.module, owner))

    def _attribute_of_instance(self, value: Instance, name: str) -> Any:
        method = self.method(value.kind, name)
        if method is not None and _has(method, "property"):
            return self._property(value, method)
        self._refuse_descriptor(value.kind, name)
        if name in value.fields:
            return chosen(value.fields[name])
        if name in value.absent and not value.kind.member("__getattr__"):
            raise RaisedError("AttributeError")
        if value.kind.member(name) is not None:
            return self.attribute_of_class(value.kind, value, name)
        forward = self.method(value.kind, "__getattr__")
        if forward is not None and not name.startswith("__"):
            return self.call_function(forward, [value, name], {})
        raise NotUnderstoodError(f"the attribute {name!r} of a {value.kind.name} is not described")

    def _property(self, value: Instance, method: Function) -> Any:
        try:
            return self.call_function(method, [value], {})
        except RaisedError as raised:
            if raised.name == "AttributeError" and value.kind.member("__getattr__"):
                raise NotUnderstoodError(
                    f"the property {method.name!r}, whose AttributeError calls __getattr__"
                ) from raised
            raise

    def _refuse_descriptor(self, kind: Class, name: str) -> None:
        """An object in a class may take over what reading and setting of the attribute mean."""
        owner, node = kind.member(name) or (kind, None)
        made = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if made is None or isinstance(made, ast.Constant):
            return
        value = self._field_default(owner, made) if is_dataclass(owner) else self.attribute_of_class(kind, kind, name)
        if isinstance(value, Instance) and any(value.kind.member(m) for m in ("__get__", "__set__", "__delete__")):
            raise NotUnderstoodError(f"the attribute {name!r}, a descriptor of {kind.name}")

    def attribute_of_class(self, kind: Class, receiver: Any, name: str) -> Any:
        method = self.method(kind, name)
        if method is not None:
            if _has(method, "property"):
                raise NotUnderstoodError(f"the property {name!r} of the class {kind.name}")
            if _has(method, "staticmethod"):
                return method
            if _has(method, "classmethod"):
                return Bound(method, receiver.kind if isinstance(receiver, Instance) else receiver)
            return Bound(method, receiver) if not isinstance(receiver, Class) else method
        found = kind.member(name)
        if found is None:
            raise NotUnderstoodError(f"the attribute {name!r} of the class {kind.name}")
        owner, node = found
        assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        if any(isinstance(n, ast.Name) and kind.member(n.id) for n in ast.walk(node.value)):
            raise NotUnderstoodError(f"the class attribute {name!r}, made of another one")
        with self.scope_of(owner.module):
            made = self.evaluate(node.value)
        if isinstance(made, (Function, Bound, Known, list, dict, set, Instance)):
            raise NotUnderstoodError(f"the class attribute {name!r}: a function, or shared by all objects")
        return made

    def has_attribute(self, value: Any, name: str) -> bool:
        if isinstance(value, StandIn):
            return value.has(name)
        return self.attribute_or(value, name, MISSING) is not MISSING

    def attribute_or(self, value: Any, name: str, default: Any) -> Any:
        """`getattr` with a default. The attribute is asked for once: a property may do something."""
        if isinstance(value, StandIn):
            return value.attribute(name) if value.has(name) else default
        if isinstance(value, str) and not hasattr(value, name):
            return default
        if not isinstance(value, Instance):
            raise NotUnderstoodError("whether this value has an attribute")
        try:
            return self.attribute(value, name)
        except RaisedError as raised:
            if raised.name != "AttributeError":
                raise
            return default

    def set_attribute(self, value: Any, name: str, new: Any) -> None:
        _refuse_private(name)
        if name.startswith("__"):
            raise NotUnderstoodError(f"the attribute {name!r} is set, which Python itself reads")
        if isinstance(value, StandIn):
            value.set_attribute(name, new)
            return
        if not isinstance(value, Instance):
            raise NotUnderstoodError("an attribute of this value is set")
        if is_frozen(value.kind):
            raise NotUnderstoodError(f"the attribute {name!r} of {value.kind.name}, which is frozen, is set")
        setter = value.kind.setter(name)
        method = self.method(value.kind, name)
        if setter is not None:
            owner, node = setter
            self.call_function(Function(node, owner.module, owner), [value, new], {})
        elif (method is not None and _has(method, "property")) or value.kind.is_named_tuple:
            raise RaisedError("AttributeError")
        else:
            self._refuse_descriptor(value.kind, name)
            if has_slots(value.kind) and name not in value.fields:
                raise NotUnderstoodError(f"the attribute {name!r} of {value.kind.name}, which has slots")
            value.fields[name] = new

    # Items and membership.

    def item(self, value: Any, key: Any) -> Any:
        if isinstance(value, StandIn):
            return value.item(key)
        if isinstance(value, (list, tuple)) and isinstance(key, int):
            if not -len(value) <= key < len(value):
                raise RaisedError("IndexError")
            return value[key]
        if isinstance(value, (list, tuple)) and isinstance(key, slice) and _is_plain(key):
            return value[key]
        if isinstance(value, dict):
            known = self.known_key(value, key)
            if known not in value:
                raise RaisedError("KeyError")
            return value[known]
        raise NotUnderstoodError("an item of this value")

    def set_item(self, value: Any, key: Any, new: Any) -> None:
        if isinstance(value, StandIn):
            value.set_item(key, new)
        elif isinstance(value, dict):
            value[self.known_key(value, key)] = new
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value[key] = new
        else:
            raise NotUnderstoodError("an item of this value is set")

    def delete_item(self, value: Any, key: Any) -> None:
        if isinstance(value, StandIn):
            value.delete_item(key)
            return
        if not isinstance(value, dict):
            raise NotUnderstoodError("an item of this value is deleted")
        known = self.known_key(value, key)
        if known not in value:
            raise RaisedError("KeyError")
        del value[known]

    def key(self, value: Any) -> Any:
        """A value that can be a key: its equality with others is known."""
        if isinstance(value, Instance) and (_compares_fields(value.kind) or value.kind.member("__hash__")):
            raise NotUnderstoodError("a key that says itself what it equals")
        if isinstance(value, (str, int)) or value is None or isinstance(value, (Instance, Opaque, Identity)):
            return value
        raise NotUnderstoodError("a key of this type")

    def known_key(self, table: Mapping[Any, Any], key: Any) -> Any:
        """The key, if whether the table has it can be told. Two names that nobody knows may be the same."""
        names = (key, *table)
        is_told = not any(isinstance(n, Opaque) for n in names) or all(isinstance(n, Name) for n in names)
        if not is_told and key not in table and len(table) > 0:
            raise NotUnderstoodError("whether two unknown names are the same")
        return self.key(key)

    def contains(self, collection: Any, item: Any) -> Any:
        if isinstance(collection, StandIn):
            return collection.contains(item)
        if isinstance(collection, (dict, set)):
            return self.known_key(dict.fromkeys(collection), item) in collection
        if isinstance(collection, (list, tuple)):
            # Python asks first whether it is the same object.
            is_in = (self._is_object(element, item) or self.is_equal(element, item) for element in collection)
            return any(map(self.paths.decide, is_in))
        raise NotUnderstoodError("membership in this value")

    def _is_object(self, element: Any, item: Any) -> bool:
        return isinstance(item, (Instance, StandIn)) and element is item

    def key_set(self, values: list[Any]) -> set[Any]:
        found: dict[Any, None] = {}
        for value in values:
            found[self.known_key(found, value)] = None
        return set(found)

    def elements(self, value: Any) -> list[Any]:
        if isinstance(value, (list, tuple)):
            return list(value)
        if isinstance(value, dict):
            return list(value)
        if isinstance(value, StandIn):
            return value.elements()
        raise NotUnderstoodError("an iteration over this value")

    def is_same(self, left: Any, right: Any) -> Any:
        if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
            if arithmetic.is_flag(left) and arithmetic.is_flag(right) and left is not right:
                return self.is_equal(left, right)
            return left is right
        comparable = (Instance, StandIn, Class, list, dict)
        if isinstance(left, Opaque) and isinstance(right, Opaque) and left is not right:
            raise NotUnderstoodError("whether two unknown values are the same")
        if isinstance(left, comparable) and isinstance(right, comparable):
            return left is right
        raise NotUnderstoodError("the identity of these values")

    def is_equal(self, left: Any, right: Any) -> Any:
        if arithmetic.is_flag(left) and arithmetic.is_flag(right):
            return left == right
        if arithmetic.is_number(left) and arithmetic.is_number(right):
            return arithmetic.equal(self.d, left, right)
        if any(isinstance(side, Instance) and _compares_fields(side.kind) for side in (left, right)):
            raise NotUnderstoodError("the equality of objects that say themselves what they equal")
        if left is None or right is None:
            return left is right
        if isinstance(left, str) and isinstance(right, str):
            return left == right
        if isinstance(left, str | int) and isinstance(right, str | int):
            return left == right
        if isinstance(left, Opaque) and left is right:
            return True
        if isinstance(left, Instance) and isinstance(right, Instance):
            return left is right
        if isinstance(left, Identity) and isinstance(right, Identity):
            return left == right
        found = left.equals(right) if isinstance(left, StandIn) else NotImplemented
        if found is NotImplemented:
            raise NotUnderstoodError("the equality of these values")
        return found

    # Calls.

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if isinstance(function, Bound):
            return self.call_function(function.function, [function.receiver, *arguments], keywords)
        if isinstance(function, Function):
            return self.call_function(function, arguments, keywords)
        if isinstance(function, Class):
            return self.construct(function, arguments, keywords)
        if isinstance(function, Instance):
            return self.call(self.attribute_of_class(function.kind, function, "__call__"), arguments, keywords)
        if isinstance(function, StandIn):
            function = function.attribute("__call__")
        if isinstance(function, Known):
            if function.prints:
                self.refuse_printing([*arguments, *keywords.values()])
            asking = [self] if function.name in ASKS_INTERPRETER else []
            return self._call_described(function.call, [*asking, *arguments], keywords)
        if function is None:
            raise RaisedError("TypeError")
        if callable(function):
            return self._call_described(function, arguments, keywords)
        raise NotUnderstoodError("a call of this value")

    def _call_described(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """A method of a stand-in. Arguments that it does not take are not described."""
        try:
            return function(*arguments, **keywords)
        except TypeError as wrong:
            if wrong.__traceback__ is None or wrong.__traceback__.tb_next is not None:
                raise
            raise NotUnderstoodError(f"this call of {function.__name__}: {wrong}") from wrong  # it did not begin

    def refuse_printing(self, values: list[Any]) -> None:
        """Text of an object is made by its own methods, which may do anything."""
        plain = (str, StandIn, Class, Function, Bound)
        for value in values:
            if isinstance(value, Instance):
                if _compares_fields(value.kind) or any(map(value.kind.member, ("__str__", "__repr__", "__format__"))):
                    raise NotUnderstoodError(f"the text of a {value.kind.name}")
            elif isinstance(value, (list, tuple, dict, set)):
                self.refuse_printing([*value, *(value.values() if isinstance(value, dict) else ())])
            elif not (
                value is None or isinstance(value, plain) or arithmetic.is_number(value) or arithmetic.is_flag(value)
            ):
                raise NotUnderstoodError("the text of this value")

    def call_function(self, function: Function, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if len(self.frames) > DEEPEST_CALL:
            raise NotUnderstoodError(f"calls more than {DEEPEST_CALL} deep")
        frame = Frame(function.module, function, parent=function.scope)
        self._bind_arguments(function, frame, list(arguments), dict(keywords))
        return self.run_body(function, frame)

    def _bind_arguments(self, function: Function, frame: Frame, given: list[Any], keywords: dict[str, Any]) -> None:
        spec = function.node.args
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        if any(a.arg in keywords for a in spec.posonlyargs):
            raise NotUnderstoodError(f"a keyword for an argument of {function.name} that goes by its place")
        for name in positional[: len(given)]:
            if name in keywords:
                raise RaisedError("TypeError")
            frame.names[name] = given.pop(0)
        if given and spec.vararg is None:
            raise RaisedError("TypeError")
        if spec.vararg is not None:
            frame.names[spec.vararg.arg] = tuple(given)
        defaults = dict(zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults |= {a.arg: n for a, n in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if n is not None}
        for name in (*positional, *(a.arg for a in spec.kwonlyargs)):
            if name in frame.names:
                continue
            if name in keywords:
                frame.names[name] = keywords.pop(name)
            elif name in defaults:
                frame.names[name] = self._default(function, defaults[name])
            else:
                raise RaisedError("TypeError")
        if spec.kwarg is not None:
            frame.names[spec.kwarg.arg] = keywords
        elif keywords:
            raise RaisedError("TypeError")

    def _default(self, function: Function, node: ast.expr) -> Any:
        """Python evaluates a default once, where the function is defined. Only for few is that the same as at each call."""
        is_local = function.scope is not None and not isinstance(node, ast.Constant)
        is_local |= function.owner is not None and _uses_name_of(function.owner, node)
        if is_local or not isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp)):
            raise NotUnderstoodError(f"the default {ast.unparse(node)} of {function.name}")
        with self.scope_of(function.module):
            return self.evaluate(node)

    # Construction.

    def construct(self, kind: Class, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if self.is_exception(kind):
            return Raisable(kind.name, kind)
        made = self.noted(Instance(kind))
        initialize = self.method(kind, "__init__")
        is_own = initialize is not None and initialize.owner is kind
        if "typing.NamedTuple" in kind.bases or (is_dataclass(kind) and not is_own):
            self._fill_dataclass(made, list(arguments), dict(keywords))
        elif any(map(is_dataclass, kind.ancestors)) and not is_own:
            raise NotUnderstoodError(
                f"the construction of a {kind.name}, which is no dataclass and has a base that is one"
            )
        elif initialize is not None:
            self.call_function(initialize, [made, *arguments], keywords)
        elif arguments or keywords:
            raise NotUnderstoodError(f"the construction of a {kind.name}")
        return made

    def noted(self, made: Instance) -> Instance:
        """An object that the code makes may get the `id()` of one that is gone."""
        if self.frames:
            self.made.append(made)
        return made

    def _fill_dataclass(self, made: Instance, arguments: list[Any], keywords: dict[str, Any]) -> None:
        fields = dataclass_fields(made.kind)
        decorators = (node for c in made.kind.ancestors for node in c.node.decorator_list)
        defaults = (node.value for _, node in fields if isinstance(node.value, ast.Call))
        if arguments and any("kw_only" in _options(node) for node in (*decorators, *defaults)):
            raise NotUnderstoodError(f"arguments of {made.kind.name} by their place")
        for owner, field_node in fields:
            assert isinstance(field_node.target, ast.Name)
            name = field_node.target.id
            if arguments:
                made.fields[name] = arguments.pop(0)
            elif name in keywords:
                made.fields[name] = keywords.pop(name)
            elif field_node.value is not None:
                is_made = isinstance(field_node.value, ast.Call)
                made.fields[name] = default = self._field_default(owner, field_node.value)
                if isinstance(default, (Instance, list, dict, set)) and not is_made:
                    raise NotUnderstoodError(f"the default of {name!r}, which all objects share")
            else:
                raise RaisedError("TypeError")
        if arguments or keywords:
            raise RaisedError("TypeError")
        if made.kind.member("__post_init__"):
            self.call(self.attribute(made, "__post_init__"), [], {})

    def _field_default(self, owner: Class, node: ast.expr) -> Any:
        if _uses_name_of(owner, node):
            raise NotUnderstoodError(f"the default {ast.unparse(node)}, made of another attribute of {owner.name}")
        with self.scope_of(owner.module):
            if isinstance(node, ast.Call) and _is_imported(owner.module, node.func, "dataclasses", "field"):
                options = {keyword.arg: keyword.value for keyword in node.keywords}
                if node.args or not options.keys() <= FIELD_OPTIONS:
                    raise NotUnderstoodError(f"the field {ast.unparse(node)}")
                if "default_factory" in options:
                    return self.call(self.evaluate(options["default_factory"]), [], {})
                if "default" in options:
                    return self.evaluate(options["default"])
                raise RaisedError("TypeError")
            made = self.evaluate(node)
            if isinstance(node, ast.Call) and isinstance(made, Instance):
                raise NotUnderstoodError(f"the default {ast.unparse(node)}, which all objects share")
            return made

    def is_exception(self, kind: Class) -> bool:
        bases = (base for c in kind.ancestors for base in c.bases if isinstance(base, str))
        return any(base.startswith("builtins.") and _is_exception(base.removeprefix("builtins.")) for base in bases)

    def super_of_frame(self) -> SuperOf:
        function = self.frame.function
        if function is None or function.owner is None or self.frame.is_comprehension:
            raise NotUnderstoodError("super() outside of a method")
        if function.module.binds("super") or "super" in self.frame.names or has_slots(function.owner):
            raise NotUnderstoodError("super() where it may be another thing")
        bases = [base for base in function.owner.bases if isinstance(base, Class)]
        if len(bases) != 1 or len(function.owner.bases) != 1:
            raise NotUnderstoodError("super() of a class that has several bases, or one that is not known")
        first = function.node.args.args[0].arg
        return SuperOf(bases[0], self.frame.names[first])


@dataclass(frozen=True, eq=False)
class SuperOf:
    """`super()`: the methods of a base class, with the object that runs."""

    cls: Class
    receiver: Any


@dataclass(frozen=True, eq=False)
class Raisable:
    """An exception that was made and not raised yet."""

    name: str
    kind: Class | None = None


class _Submodule(dict[str, Any]):
    """The names of a module of the tree that was imported whole."""

    def __init__(self, objects: Objects, name: str) -> None:
        super().__init__()
        self._objects, self._module = objects, objects.sources.module(name)

    def __contains__(self, name: object) -> bool:
        assert self._module is not None
        return self._module.binds(str(name))

    def __getitem__(self, name: str) -> Any:
        assert self._module is not None
        return self._objects.global_name(self._module, name)


MISSING = object()
OF_PYTHON = ("logging", "time", "array", "copy", "typing", "dataclasses", "builtins")
"""Libraries that come with Python."""
UNSEEN_METHODS = (
    "__setattr__",
    "__getattribute__",
    "__new__",
    "__slots__",
    "__init_subclass__",
    "__del__",
    "__instancecheck__",
    "__subclasshook__",
)
"""Methods that Python calls where the interpreter does not."""
HARMLESS_DECORATORS = ("staticmethod", "classmethod", "property", "setter", "abstractmethod", "override")
FIELD_OPTIONS = frozenset({"default", "default_factory", "repr", "compare", "metadata", "kw_only"})
DEFINED_IN = {
    "dataclass": ("dataclasses",),
    "abstractmethod": ("abc",),
    "override": ("typing", "typing_extensions"),
    "runtime_checkable": ("typing",),
}
"""Modules of decorators; those that are not here are builtins."""
ASKS_INTERPRETER = frozenset({*ASKING, "copy.copy", "dataclasses.replace"})


def dataclass_fields(kind: Class) -> list[tuple[Class, ast.AnnAssign]]:
    """Annotated names of a dataclass, those of its bases first."""
    found: dict[str, tuple[Class, ast.AnnAssign]] = {}
    for ancestor in reversed(kind.ancestors):
        for statement in ancestor.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = (ancestor, statement)
    for owner, node in found.values():
        text = text_of(node.annotation)
        is_plain = text.startswith(("ClassVar[", "typing.ClassVar[")) or "ClassVar" not in text
        if "InitVar" in text or "KW_ONLY" in text or not is_plain:
            raise NotUnderstoodError(f"the field {ast.unparse(node)} of {owner.name}")
    return [(owner, node) for owner, node in found.values() if "ClassVar" not in text_of(node.annotation)]


def is_dataclass(kind: Class) -> bool:
    return any(is_decorator(kind.module, decorator, "dataclass") for decorator in kind.node.decorator_list)


def initializes_nothing(base: SuperOf) -> bool:
    """`super().__init__` is that of `object`: no class above has or generates another one, and none stands beside them."""
    kinds = base.cls.ancestors
    others = (name for c in kinds for name in c.bases if isinstance(name, str))
    return (
        isinstance(base.receiver, Instance)
        and all(len(c.bases) <= 1 for c in base.receiver.kind.ancestors)
        and base.cls.member("__init__") is None
        and not any(map(is_dataclass, kinds))
        and set(others) <= {"builtins.object", "abc.ABC"}
    )


def has_slots(kind: Class) -> bool:
    """A dataclass with `slots=True`: it has no attributes but its fields."""
    return any("slots" in _options(decorator) for decorator in kind.node.decorator_list)


def is_frozen(kind: Class) -> bool:
    """A dataclass with `frozen=True`: its attributes cannot be set."""
    return any("frozen" in _options(decorator) for c in kind.ancestors for decorator in c.node.decorator_list)


def _options(decorator: ast.expr) -> set[str]:
    """The options of a decorator that are switched on. What cannot be told is an option of its own."""
    if not isinstance(decorator, ast.Call):
        return set()
    found = {"arguments"} if decorator.args else set()
    for keyword in decorator.keywords:
        is_on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        found.add(keyword.arg if is_on and keyword.arg else f"{keyword.arg} that is not True")
    return found


def _last(decorator: ast.expr) -> str:
    return text_of(decorator).rpartition(".")[2]


@lru_cache(maxsize=1000)
def _uses_name_of(kind: Class, node: ast.expr) -> bool:
    """In the body of a class its own names hide those of the module."""
    return any(isinstance(n, ast.Name) and kind.binds(n.id) for n in ast.walk(node))


def is_decorator(module: Module, node: ast.expr, name: str) -> bool:
    """Whether this is the library's decorator, and no other thing of that name."""
    if name == "setter":
        return isinstance(node, ast.Attribute) and node.attr == "setter"
    if name not in DEFINED_IN:
        return isinstance(node, ast.Name) and node.id == name and not module.binds(name)
    made = node.func if isinstance(node, ast.Call) else node
    return any(_is_imported(module, made, library, name) for library in DEFINED_IN[name])


def _is_imported(module: Module, node: ast.expr, library: str, name: str) -> bool:
    """`name` imported from a library, or `library.name`."""
    if isinstance(node, ast.Name):
        return module.imports.get(node.id) == (library, name) and node.id not in module.definitions
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and module.imports.get(node.value.id) == (library, "")
    )


def defined_at(module: Module, node: ast.expr) -> str:
    """The dotted name of something that the tree does not hold, as the module imports it. Else its text, which nothing knows."""
    if isinstance(node, ast.Name) and node.id in module.imports and not module.is_uncertain(node.id):
        return ".".join(part for part in module.imports[node.id] if part)
    if isinstance(node, ast.Name) and not module.binds(node.id):
        return f"builtins.{node.id}"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{defined_at(module, node.value)}.{node.attr}"
    return ast.unparse(node)


def _refuse_private(name: str) -> None:
    """Python spells `__name` by the class that reads it."""
    if name.startswith("__") and not name.endswith("__"):
        raise NotUnderstoodError(f"the private attribute {name!r}")


def _has(method: Function, decorator: str) -> bool:
    assert isinstance(method.node, ast.FunctionDef)
    return any(is_decorator(method.module, found, decorator) for found in method.node.decorator_list)


def _compares_fields(kind: Class) -> bool:
    says_so = any(map(kind.member, ("__eq__", "__ne__")))
    return says_so or kind.is_named_tuple or any(map(is_dataclass, kind.ancestors))


def _is_plain(key: slice) -> bool:
    return all(bound is None or isinstance(bound, int) for bound in (key.start, key.stop, key.step))


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)
