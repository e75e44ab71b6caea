"""A variant as the file that `kvproof prove --variant` reads.

The cases are functions of ordinary modules, so that ruff and mypy read them. A file holds what its functions need: the imports,
and the undecorated functions of their module and of `variants/changes.py`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator

from referee.cases import Variant
from referee.variants import changes


def text_of(variant: Variant) -> str:
    """The text of the file, complete."""
    module = next(iter(variant.rules.values())).__module__
    named = {rule.__name__ for rule in variant.rules.values()} | {variant.name}
    rules = ", ".join(f'"{action}": {rule.__name__}' for action, rule in variant.rules.items())
    parts = [
        f'"""{variant.why}"""',
        "from __future__ import annotations",
        *_kept(changes.__name__, frozenset()),
        *_kept(module, frozenset(named)),
        f"REPLACES = {{{rules}}}",
    ]
    if variant.applies is not None:
        parts.append(f"applies = {variant.applies.__name__}")
    return "\n\n".join(parts) + "\n"


def _kept(module: str, named: frozenset[str]) -> Iterator[str]:
    """Imports from outside of this package, and functions: those without a decorator, and those that are named."""
    source, statements = _parsed(module)
    for statement in statements:
        match statement:
            case ast.ImportFrom(module=str(origin)) if origin.partition(".")[0] in ("referee", "__future__"):
                continue
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.FunctionDef(name=name, decorator_list=decorators) if not decorators or name in named:
                pass
            case _:
                continue
        yield "\n".join(source[statement.lineno - 1 : statement.end_lineno])


@functools.cache
def _parsed(module: str) -> tuple[list[str], list[ast.stmt]]:
    source = inspect.getsource(sys.modules[module])
    return source.splitlines(), ast.parse(source).body
