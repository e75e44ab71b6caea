"""Source trees: where the code under proof is read from, and what its modules define. Nothing is imported.

A tree is a folder (a checkout, an unpacked wheel, site-packages) or a commit of a local git repository.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

from kvproof.model.code.errors import NotUnderstoodError, Place


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Tree(Protocol):
    """Files of Python source by their path below the root."""

    @property
    def name(self) -> str: ...

    def read(self, path: str) -> str | None:
        """The text of a file, or None where there is no such file."""
        ...


@dataclass(frozen=True)
class Folder:
    root: Path

    @property
    def name(self) -> str:
        return str(self.root)

    def read(self, path: str) -> str | None:
        file = self.root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None


@dataclass(frozen=True)
class Commit:
    """A commit of a local repository; `below` is the folder in it that holds the packages."""

    repository: Path
    commit: str
    below: str = ""

    @property
    def name(self) -> str:
        return f"{self.repository.name}@{self.commit}"

    def read(self, path: str) -> str | None:
        command = ["git", "-C", str(self.repository), "show", f"{self.commit}:{self.below}{path}"]
        shown = subprocess.run(command, capture_output=True, check=False)
        return shown.stdout.decode("utf-8") if shown.returncode == 0 else None


@dataclass(eq=False)
class Module:
    """One file: its functions, classes, imports and constants by name."""

    name: str
    path: str
    source: str
    """Its text."""
    was_read: set[ast.stmt] = field(default_factory=set)
    """Functions whose bodies were looked at since `Sources.begin`."""
    facts: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """What was asked of other text since then (`fact`), with the answers."""
    _digests: dict[ast.FunctionDef, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of its text: an answer rests on it from then on."""
        self.fact(ALL, "")
        return self.source

    @cached_property
    def tree(self) -> ast.Module:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(self.source.encode()).readline)
        if encoding not in ("utf-8", "utf-8-sig"):
            raise NotUnderstoodError(f"{self.path} is written in {encoding}")
        try:
            return ast.parse(self.source, self.path)
        except (SyntaxError, ValueError) as wrong:
            line = getattr(wrong, "lineno", None) or 0  # it has none where a null byte is
            raise NotUnderstoodError(f"{Place(self.path, line)}: {getattr(wrong, 'msg', wrong)}") from wrong

    @property
    def package(self) -> str:
        """What a relative import starts from."""
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Top-level functions, classes and assignments. The last one of a name counts."""
        found: dict[str, ast.stmt] = {}
        for statement in self.tree.body:
            for name in _defined_by(statement):
                found[name] = statement
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """(module, name in it) by the local name; the name is empty where the module itself is meant."""
        found: dict[str, tuple[str, str]] = {}
        for statement in self.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                found.update(imported_by(statement, self.package))
        return found

    @cached_property
    def uncertain(self) -> frozenset[str]:
        """Names of which nobody can tell what they are when a function runs; "*" for all of them.

        They are bound in other ways than by one plain definition or import, or handed to a call at import time.
        """
        found = set(self.definitions) & set(self.imports)
        times = Counter(name for statement in self.tree.body for name in set(_defined_by(statement)))
        found.update(name for name, number in times.items() if number > 1)
        for statement in self._running():
            is_plain = statement in self.tree.body
            plainly = {*_defined_by(statement), *_imported_plainly(statement)} if is_plain else set()
            found.update(bound_by(statement) - plainly)
        if re.search(r"\bglobal\b", self.source):
            found.update(name for node in ast.walk(self.tree) if isinstance(node, ast.Global) for name in node.names)
        return frozenset(found | self.changed)

    @cached_property
    def changed(self) -> frozenset[str]:
        """Names whose objects the import of this module may change."""
        return frozenset(self._with_aliases(self._changed_by(self._run_at_import())))

    def _running(self) -> Iterator[ast.stmt]:
        """Top-level statements that run: not those for type checkers, or for a module that is run as a program."""
        for statement in self.tree.body:
            if isinstance(statement, ast.If) and self._is_never(statement.test):
                yield from statement.orelse
            else:
                yield statement

    def _is_never(self, test: ast.expr) -> bool:
        """`TYPE_CHECKING`, and `__name__ == "__main__"`: a module that is imported has its own name."""
        if isinstance(test, ast.Name):
            return self.imports.get(test.id) == ("typing", "TYPE_CHECKING") and len(self._binders(test.id)) == 1
        return ast.unparse(test) == "__name__ == '__main__'" and not self._binders("__name__")

    def _binders(self, name: str) -> list[ast.stmt]:
        return [statement for statement in self.tree.body if name in bound_by(statement)]

    def _run_at_import(self) -> list[ast.AST]:
        """Nodes that run when the module is imported: all but the bodies of functions that nothing there names."""
        found: list[ast.AST] = []
        entered: set[str] = set()
        waiting: list[ast.AST] = list(self._running())
        while waiting:
            node = waiting.pop()
            found.append(node)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                waiting += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
                waiting += self._annotations_run(node)
            elif isinstance(node, ast.ClassDef):
                waiting += [*node.decorator_list, *(keyword.value for keyword in node.keywords), *node.body]
                waiting += [hook for base in node.bases for hook in self._subclass_hooks(base)]
            elif isinstance(node, ast.AnnAssign) and self._annotations_are_text:
                waiting += [node.target, *filter(None, [node.value])]
            else:
                kept = self._kept_lambdas(node)
                waiting += [child for child in ast.iter_child_nodes(node) if child not in kept]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in entered:
                entered.add(node.id)
                definition = self.definitions.get(node.id)
                if isinstance(definition, (ast.FunctionDef, ast.ClassDef)):
                    waiting += [part for child in ast.iter_child_nodes(definition) for part in ast.walk(child)]
                elif isinstance(definition, (ast.Assign, ast.AnnAssign)):
                    waiting += [f.body for part in ast.walk(definition) for f in self._kept_lambdas(part)]
        return found

    def _kept_lambdas(self, node: ast.AST) -> list[ast.Lambda]:
        """Functions that a call only keeps: they may run where the name of what keeps them is read."""
        if not isinstance(node, ast.Call) or not self._only_keeps(node):
            return []
        return [argument for argument in node.args if isinstance(argument, ast.Lambda)]

    @cached_property
    def _annotations_are_text(self) -> bool:
        return self.imports.get("annotations") == ("__future__", "annotations")

    def _annotations_run(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
        """Annotations that run something. A top-level function's that only names a class loads it; who calls it from there names
        the function, which is read with its annotations then, or `READ_ANNOTATIONS`."""
        if self._annotations_are_text:
            return []
        only_loads = node in self.tree.body and not node.decorator_list
        return [found for found in _annotations(node) if not (only_loads and isinstance(found, ast.Name))]

    def _subclass_hooks(self, base: ast.expr) -> Iterator[ast.AST]:
        """What a base runs when a class inherits from it, if the base is defined here; else the base's expression."""
        definition = self.definitions.get(base.id) if isinstance(base, ast.Name) else None
        if not isinstance(definition, ast.ClassDef):
            if not isinstance(base, ast.Name):
                yield base
            return
        for statement in definition.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init_subclass__":
                yield from statement.body
        for inherited in definition.bases:
            yield from self._subclass_hooks(inherited)

    def _changed_by(self, nodes: list[ast.AST]) -> set[str]:
        """Names whose objects these nodes may change: they set attributes of them, or hand them to a call."""
        found: set[str] = set()
        of_others = {node.func for node in nodes if isinstance(node, ast.Call) and self._patches_another(node)}
        for node in nodes:
            changed: list[ast.AST] = []
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                changed = [node]
            elif isinstance(node, ast.Call) and not self._only_keeps(node):
                changed = [*node.args, *(keyword.value for keyword in node.keywords)]
                root = node.func.value if isinstance(node.func, ast.Attribute) else None
                if isinstance(root, ast.Name) and isinstance(self.definitions.get(root.id), ast.ClassDef):
                    changed.append(root)
            elif isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in MAGIC and node not in of_others:
                found.add("*")
            if isinstance(node, ast.Attribute) and node.attr == "modules" and isinstance(node.value, ast.Name):
                found.update("*" if self.imports.get(node.value.id) == ("sys", "") else ())
            parts = [n for part in changed for n in ast.walk(part) if isinstance(n, (ast.Name, ast.Attribute))]
            if isinstance(node, ast.Call):  # a call changes no builtin, which has no name here
                parts = [n for n in parts if isinstance(n, ast.Attribute) or self._has(n.id)]
            found.update(name for name in map(_last_name, parts) if not name.startswith("__"))
        return found

    def _has(self, name: str) -> bool:
        return name in self._bound

    @cached_property
    def _bound(self) -> frozenset[str]:
        return frozenset(name for statement in self.tree.body for name in bound_by(statement))

    def _only_keeps(self, call: ast.Call) -> bool:
        """`field(...)` of a dataclass and the like: they keep what they are given and change nothing of it."""
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            module = self.imports.get(call.func.value.id, ("", "not a module"))
            return not module[1] and (module[0], call.func.attr) in KEEPERS
        return isinstance(call.func, ast.Name) and self.imports.get(call.func.id) in KEEPERS

    def _with_aliases(self, changed: set[str]) -> set[str]:
        """Who changes `alias` changes what `alias = name` named, too."""
        found = set(changed)
        others = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        binders = [s for s in self.tree.body if not isinstance(s, others)]
        while True:
            more = {
                node.id
                for statement in binders
                if found & bound_by(statement)
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and self._has(node.id)
            }
            if more <= found:
                return found
            found |= more

    def _patches_another(self, call: ast.Call) -> bool:
        """`setattr(torch, "name", ...)`: an attribute of a module that was imported, and is not this one."""
        is_setattr = isinstance(call.func, ast.Name) and call.func.id == "setattr" and bool(call.args)
        target = call.args[0] if is_setattr else None
        if not isinstance(target, ast.Name) or target.id in self.definitions:
            return False
        imported = ".".join(part for part in self.imports.get(target.id, ()) if part)
        return bool(imported) and imported.partition(".")[0] != self.name.partition(".")[0]

    @cached_property
    def functions(self) -> list[tuple[str, ast.FunctionDef]]:
        """Functions and methods, with their names as `definition` takes them."""
        bodies = [("", self.tree.body)]
        bodies += [(f"{c.name}.", c.body) for c in self.tree.body if isinstance(c, ast.ClassDef)]
        return [(f"{of}{f.name}", f) for of, body in bodies for f in body if isinstance(f, ast.FunctionDef)]

    @cached_property
    def outline(self) -> str:
        """All that stands outside of the bodies of functions, and what an import may change, which those bodies say too."""
        bodies = {node for _, node in self.functions}
        facts = (self.path, sorted(self.uncertain), sorted(self.changed))
        return "\n".join([*map(str, facts), *(_without_bodies(statement, bodies) for statement in self.tree.body)])

    @cached_property
    def by_name(self) -> dict[str, ast.FunctionDef]:
        """The functions; of several of one name, as a property has them, each with its number."""
        found: dict[str, ast.FunctionDef] = {}
        seen: Counter[str] = Counter()
        for name, node in self.functions:
            found[f"{name}#{seen[name]}" if seen[name] else name] = node
            seen[name] += 1
        return found

    @cached_property
    def digest(self) -> str:
        """Of all of it. Nothing is parsed for it."""
        return sha256(f"{self.path}\n{self.source}")

    def digest_of(self, function: ast.FunctionDef) -> str:
        if function not in self._digests:
            self._digests[function] = sha256("\n".join(self.lines[function.lineno - 1 : function.end_lineno]))
        return self._digests[function]

    @cached_property
    def lines(self) -> list[str]:
        return self.source.split("\n")

    def fact(self, question: str, about: str) -> list[str]:
        """The answer to one of `QUESTIONS`, which is noted. It takes no function as read."""
        if (question, about) not in self.facts:
            self.facts[question, about] = sorted(QUESTIONS[question](self, about))
        return self.facts[question, about]

    def is_uncertain(self, name: str) -> bool:
        return name in self.uncertain or "*" in self.uncertain

    def binds(self, name: str) -> bool:
        return name in self.definitions or name in self.imports or self.is_uncertain(name)

    def has(self, dotted: str) -> bool:
        """Whether it defines `Class.method`, `Class` or `function`."""
        return self.found(dotted) is not None

    def definition(self, dotted: str) -> ast.stmt | None:
        """The definition of `Class.method` or of `function`, which is read from then on."""
        found = self.found(dotted)
        if found is not None:
            self.was_read.add(found)
        return found

    def found(self, dotted: str) -> ast.stmt | None:
        """The same, without a note that it is read."""
        name, _, member = dotted.partition(".")
        found = self.definitions.get(name)
        if not member or not isinstance(found, ast.ClassDef):
            return None if member else found
        return next((s for s in found.body if isinstance(s, ast.FunctionDef) and s.name == member), None)


def _set_in(module: Module, function: str) -> set[str]:
    parts = ast.walk(module.found(function) or ast.Pass())
    return {n.attr for n in parts if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}


def _keywords_of(module: Module, function: str) -> set[str]:
    found = module.found(function)
    return {a.arg for a in found.args.kwonlyargs} if isinstance(found, ast.FunctionDef) else set()


ALL, MENTIONS, SETS, TAKES = "all", "mentions", "sets", "takes"
QUESTIONS: Mapping[str, Callable[[Module, str], set[str]]] = {
    ALL: lambda module, _: {sha256(module.source)},
    MENTIONS: lambda module, word: {word} if word in module.source else set(),
    SETS: _set_in,
    TAKES: _keywords_of,
}
"""Of a word, whether it stands in the text; of a function, which attributes it sets and which keywords it takes."""


@dataclass
class Sources:
    """The modules of a tree, each parsed once."""

    tree: Tree
    used: set[tuple[str, str]] = field(default_factory=set)
    """(module, name) of what was looked up."""
    _modules: dict[str, Module | None] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Forgets what was looked up and read, not the modules."""
        self.used.clear()
        self._asked.clear()
        for module in filter(None, self._modules.values()):
            module.was_read.clear()
            module.facts.clear()

    def asked(self) -> dict[str, Module | None]:
        """The modules that were asked for since."""
        return {name: self._modules[name] for name in sorted(self._asked)}

    def module(self, name: str) -> Module | None:
        """A module by its dotted name, or None where the tree has no such file."""
        self._asked.add(name)
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def has(self, module_name: str, dotted: str) -> bool:
        """Whether the tree has the module, and this defines `Class.method`, `Class` or `function`."""
        module = self.module(module_name)
        return module is not None and module.has(dotted)

    def fact(self, question: str, module_name: str, about: str) -> frozenset[str]:
        """The answer to one of `QUESTIONS` about a module; of one that the tree does not have it is empty."""
        module = self.module(module_name)
        return frozenset(module.fact(question, about)) if module is not None else frozenset()

    def with_text(self, tree: Tree, path: str) -> Sources:
        """Those of a tree that differs in one file: the other modules are not parsed again."""
        kept = {name: module for name, module in self._modules.items() if module is None or module.path != path}
        return Sources(tree, _modules=kept)

    def line(self, path: str, number: int) -> str:
        """A line of one of the modules that were read."""
        read = (module for module in self._modules.values() if module is not None and module.path == path)
        lines = next((module.lines for module in read), [])
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def function_at(self, path: str, number: int) -> str | None:
        """`Class.function` or `function` in which a line of a module that was read stands, without those inside a function."""
        read = (module for module in self._modules.values() if module is not None and module.path == path)
        return next((name for module in read for name, node in module.functions if _spans(node, number)), None)

    def patched(self) -> str | None:
        """Something that was looked up, and that the import of another module, one of those that were read, may change."""
        for module in [m for m in self._modules.values() if m is not None]:
            origins = {module.imports[name] for name in module.changed if name in module.imports}
            whole = {origin for origin, name in origins if not name}
            for used_module, name in sorted(self.used):
                by_attribute = used_module in whole and name in module.changed
                if used_module != module.name and ((used_module, name) in origins or by_attribute):
                    return f"{name} of {used_module}, which {module.path} may change"
        return None

    def _read(self, name: str) -> Module | None:
        base = name.replace(".", "/")
        for path in (f"{base}/__init__.py", f"{base}.py"):
            try:
                text = self.tree.read(path)
            except UnicodeDecodeError as wrong:
                raise NotUnderstoodError(f"{path} is not written in UTF-8") from wrong
            if text is not None:
                return Module(name, path, text)
        return None


@cache
def text_of(node: ast.AST) -> str:
    """A part of the code as Python writes it. Each path asks this of the same parts."""
    return ast.unparse(node)


def _spans(node: ast.FunctionDef, number: int) -> bool:
    return node.lineno <= number <= (node.end_lineno or node.lineno)


def _without_bodies(statement: ast.stmt, functions: set[ast.FunctionDef]) -> str:
    """A statement as text, without the bodies of these functions."""
    if isinstance(statement, ast.ClassDef):
        inner = [_without_bodies(part, functions) for part in statement.body]
        return "\n".join([_headline(statement), *inner, "end"])
    return _headline(statement) if statement in functions else ast.dump(statement)


def _headline(statement: ast.stmt) -> str:
    head = copy.copy(statement)
    head.body = []  # type: ignore[attr-defined]
    return ast.dump(head)


def imported_by(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local names that an import statement binds."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            yield alias.asname or alias.name, (_absolute(statement, package), alias.name)
        elif alias.asname:
            yield alias.asname, (alias.name, "")
        else:
            top = alias.name.partition(".")[0]
            yield top, (top, "")


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - statement.level + 1]
    return ".".join([*base, statement.module] if statement.module else base)


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    spec = function.args
    arguments = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg)
    return [*(a.annotation for a in arguments if a and a.annotation), *([function.returns] if function.returns else [])]


@cache
def bound_by(statement: ast.stmt) -> frozenset[str]:
    """All names that a statement binds in the scope where it stands, whatever its form; "*" if it may bind any."""
    return frozenset(_bound_below(statement))


def _bound_below(statement: ast.stmt) -> Iterator[str]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield from bound_at(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += [node.args, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            waiting += [*node.bases, *node.keywords, *node.decorator_list]
        elif isinstance(node, ast.Lambda):
            waiting.append(node.args)
        else:
            waiting.extend(ast.iter_child_nodes(node))


NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def bound_at(node: ast.AST) -> Iterator[str]:
    """The name that a node itself binds."""
    name: str | None = None
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        name = node.id
    elif isinstance(node, ast.alias):
        name = node.asname or node.name.partition(".")[0]
    elif isinstance(node, NAMED):
        name = node.name
    elif isinstance(node, ast.MatchMapping):
        name = node.rest
    if name is not None:
        yield name


KEEPERS = {("dataclasses", "field"), ("collections", "defaultdict"), ("torch", "empty")}
READ_ANNOTATIONS = {"__annotations__", "get_annotations", "get_type_hints", "getfullargspec", "signature"}
MAGIC = {"exec", "eval", "setattr", "delattr", "globals", "vars", "locals", "__import__"} | READ_ANNOTATIONS


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _imported_plainly(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names} - {"*"}


def _defined_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None
    ):
        yield statement.target.id
