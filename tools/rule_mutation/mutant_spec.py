"""A second copy of the specification in this process, with one module replaced by a mutant.

All modules of `kvproof.spec` and the interpreters that the judges need are loaded anew under their own names, then the
originals are put back: the copy lives on in the objects that were taken from it. Code of unchanged modules is compiled once.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import z3

import kvproof
from rule_mutation.mutants import ONE_LESS, ONE_MORE, REACHED, TWINS

PACKAGES = ("spec", "model")
JUDGING = ("model.prove", "spec.faults")


class NotANumber(Exception):
    """An off-by-one was tried on a flag, a ledger or a name: that is no mutant."""


@dataclass(frozen=True)
class SpecCopy:
    """What the judges need of one copy: its modules, by name, and the mutated functions that ran (`reached`)."""

    modules: Mapping[str, ModuleType]
    reached: set[str]

    def __getattr__(self, name: str) -> ModuleType:
        """`copy.effects` is `kvproof.spec.effects` of the copy, `copy.prove` its `kvproof.model.prove`."""
        for package in PACKAGES:
            if found := self.modules.get(f"kvproof.{package}.{name}"):
                return found
        raise AttributeError(name)

    @property
    def liveness_of_spec(self) -> ModuleType:
        """`copy.liveness` would be found in both packages."""
        return self.modules["kvproof.spec.liveness"]

    @property
    def machines(self) -> tuple[Any, ...]:
        return tuple(self.machine.MACHINES)

    @property
    def faults(self) -> Mapping[str, Any]:
        return dict(self.modules["kvproof.spec.faults"].FAULTS)

    @property
    def actions(self) -> dict[str, Any]:
        """Of all machines; names are unique."""
        return {name: action for machine in self.machines for name, action in machine.actions.items()}

    @property
    def ledger(self) -> Any:
        """The machine whose states are explored and whose events are replayed."""
        return self.machines[0]


def copy_of_spec(module: str | None = None, tree: ast.Module | None = None) -> SpecCopy:
    """The specification as it is, or with `module` replaced by a mutated syntax tree."""
    code = compile(tree, module or "", "exec") if tree is not None else None
    _package_paths()
    reached: set[str] = set()
    with _alone(_Finder(module, code, lambda: reached.add(module or ""))):
        for name in JUDGING:
            importlib.import_module(f"kvproof.{name}")
        modules = {name: loaded for name, loaded in sys.modules.items() if _is_copied(name)}
    # Only mutants ask whether lengths differ.
    modules["kvproof.model.symbolic"].PagedLength.__ne__ = lambda a, b: z3.Not(a == b)
    return SpecCopy(modules, reached)


class _Finder:
    """Finds the modules of the copied packages: compiled once each, the mutated one from its tree."""

    def __init__(self, module: str | None, code: CodeType | None, reached: Callable[[], None]) -> None:
        self.module, self.code, self.reached = module, code, reached

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not _is_copied(name):
            return None
        code, file, is_package = _compiled(name)
        loader = _Loader(self.code if name == self.module and self.code is not None else code, self.reached)
        return importlib.util.spec_from_loader(name, loader, origin=str(file), is_package=is_package)


class _Loader(Loader):
    def __init__(self, code: CodeType, reached: Callable[[], None]) -> None:
        self.code, self.reached = code, reached

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update({ONE_MORE: _one_more, ONE_LESS: _one_less, REACHED: self.reached})
        module.__file__ = module.__spec__.origin if module.__spec__ else None
        exec(self.code, module.__dict__)
        # A mutant may call the twin of a function that its module imports, and the twin it does not.
        domain = sys.modules.get("kvproof.spec.domain")
        for name in TWINS:
            if hasattr(domain, name):
                module.__dict__.setdefault(name, getattr(domain, name))


@cache
def _compiled(name: str) -> tuple[CodeType, Path, bool]:
    """The code of a module of the copied packages, its file, and whether it is a package."""
    package, *rest = name.split(".")[1:]
    path = _package_paths()[package].joinpath(*rest)
    is_package = path.is_dir()
    path = path / "__init__.py" if is_package else path.with_suffix(".py")
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True), path, is_package


@cache
def _package_paths() -> dict[str, Path]:
    return {name: Path(importlib.import_module(f"kvproof.{name}").__path__[0]) for name in PACKAGES}


def _is_copied(name: str) -> bool:
    return any(name == f"kvproof.{package}" or name.startswith(f"kvproof.{package}.") for package in PACKAGES)


@contextmanager
def _alone(finder: Any) -> Iterator[None]:
    """The copied packages are not in `sys.modules`, and are found by `finder`; afterwards all is as before."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_copied(name)}
    attributes = {package: getattr(kvproof, package, None) for package in PACKAGES}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_copied(name)]:
            del sys.modules[name]
        sys.modules.update(kept)
        for package, module in attributes.items():
            if module is not None:
                setattr(kvproof, package, module)


def _one_more(d: Any, number: Any) -> Any:
    return _one_of(d, number, lambda one: number + one)


def _one_less(d: Any, number: Any) -> Any:
    """Never below zero: that the caller of a subtraction knows better is part of the domain's contract."""

    def less(one: Any) -> Any:
        if isinstance(number, int):
            return max(number - 1, 0)
        enough = one <= number
        return d.where(enough, number - one, 0) if _is_term(number) else number - d.where(enough, one, _zero(d, number))

    return _one_of(d, number, less)


def _one_of(d: Any, number: Any, shifted: Callable[[Any], Any]) -> Any:
    if isinstance(number, bool) or not (
        isinstance(number, int | z3.ArithRef) or _is_length(number) or _is_term(number)
    ):
        raise NotANumber
    return shifted(d.one if _is_length(number) else 1)


def _is_length(number: Any) -> bool:
    return hasattr(number, "pages") and hasattr(number, "offset")


def _zero(d: Any, number: Any) -> Any:
    return d.zero if _is_length(number) else 0


def _is_term(number: Any) -> bool:
    """A number of `model/tracing.py`, which rules are compiled from."""
    return hasattr(number, "operator") and not number.is_flag
