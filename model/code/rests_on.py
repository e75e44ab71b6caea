"""What an answer about the code rests on: of each module that was asked for, its outline and the functions that were read.

A change of another function leaves the answer as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.source import SETS, TAKES, Module, Sources, sha256

OF_A_FUNCTION = (SETS, TAKES)
UNREADABLE = (NotUnderstoodError, RecursionError)


@dataclass(frozen=True)
class Read:
    """One module, as an answer has seen it."""

    text: str
    """The digest of all of it."""
    outline: str
    functions: Mapping[str, tuple[str, int, int]]
    """Of each function that was read, the digest of its text, its first line and its last."""
    facts: list[tuple[str, str, list[str]]]
    """What was asked of other text, with the answers."""


Shifts = dict[str, list[tuple[int, int, int]]]
"""Of a file, the first and the last line of each function that was read, and by how many lines it has moved since."""


def read_of(sources: Sources) -> dict[str, Read | None]:
    """What was asked for since `sources.begin()`; None of a module that the tree does not have."""
    return {name: _read(module) if module is not None else None for name, module in sources.asked().items()}


def parts_of(sources: Sources) -> set[str]:
    """The same by names: `path:Class.function` of what was read or asked about, `path:` for what stands outside of functions, and
    `path:*` where something was looked for in all of the text."""
    found: set[str] = set()
    for module in filter(None, sources.asked().values()):
        functions = _read_functions(module)
        asked = [about for question, about in module.facts if question in OF_A_FUNCTION]
        everywhere = "*" if len(asked) < len(module.facts) else ""
        found.update(f"{module.path}:{name}" for name in ("", everywhere, *functions, *asked))
    return found


def again(before: Mapping[str, Read | None], sources: Sources) -> tuple[dict[str, Read | None], Shifts] | None:
    """The same as it is read now, and how far the lines have moved; None where something that was read is another now."""
    sources.begin()
    shifts: Shifts = {}
    for name, seen in before.items():
        module = sources.module(name)
        if module is None or seen is None:
            if module is not None or seen is not None:
                return None
            continue
        moved = _moved(module, seen) if module.digest != seen.text else []
        if moved is None:
            return None
        shifts[module.path] = moved
    return {name: _now(sources.module(name), seen) for name, seen in before.items()}, shifts


def _moved(module: Module, before: Read) -> list[tuple[int, int, int]] | None:
    if _outline(module) != before.outline:  # first: it can be had of text that is no Python
        return None
    if any(module.fact(question, about) != answer for question, about, answer in before.facts):
        return None
    moved = []
    for name, (text, first, last) in before.functions.items():
        function = module.by_name.get(name)
        if function is None or module.digest_of(function) != text:
            return None
        moved.append((first, last, function.lineno - first))
    return moved


def _now(module: Module | None, seen: Read | None) -> Read | None:
    if module is None or seen is None or module.digest == seen.text:
        return seen
    module.was_read.update(module.by_name[name] for name in seen.functions)
    return _read(module)


def _read(module: Module) -> Read:
    facts = [(*asked, answer) for asked, answer in sorted(module.facts.items())]
    functions = {
        name: (module.digest_of(node), node.lineno, node.end_lineno or node.lineno)
        for name, node in _read_functions(module).items()
    }
    return Read(module.digest, _outline(module), functions, facts)


def _read_functions(module: Module) -> dict[str, ast.FunctionDef]:
    """Of a module of which nothing was read it is not asked whether it can be parsed."""
    if not module.was_read:
        return {}
    return {name: node for name, node in module.by_name.items() if node in module.was_read}


def _outline(module: Module) -> str:
    """That of the whole text where it cannot be parsed."""
    try:
        return sha256(module.outline)
    except UNREADABLE:
        return module.digest
