"""The checker as one source: the functions printed from the specification, the page book and the loop; compiled by numba.
The scanner of lines is a source of its own.

The source is a file in a cache folder, named after the hash of its text and of the versions that compile it; what numba
compiled stands beside it. A changed rule is a changed text, so nothing stale is ever run; the text is compared before use.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.conformance.compiled import book, filler, layout, loop, pages, places, scan_layout, scanner
from kvproof.conformance.compiled.rules import rules_source
from kvproof.model.cache_folder import cache_folder, require_ours
from kvproof.spec.actions import Action
from kvproof.spec.invariants import Invariant

Judge = Callable[..., tuple[int, int]]
Scan = Callable[..., None]
Fill = Callable[..., None]

_HEAD = '''"""Printed by kvproof from its specification; see kvproof.conformance.compiled."""
from __future__ import annotations
'''
_COMPILED = """
from numba import njit

# Nothing is allocated, so nothing is counted: numba would count every use of an array, more than half of the time.
# All becomes one function: an array is handed over as seven numbers and more, which took half of what was left.
compiled = njit(error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
compiled_to_be_called = njit(error_model="numpy", _nrt=False, cache=True)
"""
_PLAIN = """
def compiled(function):
    return function

compiled_to_be_called = compiled
"""
ENTRY = loop.judge_events.__name__
"""What Python calls, and so what is kept compiled; all else is compiled into it."""
SCAN = scanner.scan_lines.__name__
"""The same of the scanner of lines."""


def checker_source(actions: Mapping[str, Action], invariants: Mapping[str, Invariant]) -> str:
    """Everything that the loop needs, as text; what `compiled` means is left to whoever runs it."""
    parts = [
        _layout_of(layout, layout.EventArrays, layout.StateArrays),
        *map(_text_of, (*_functions_of(book), *_functions_of(places))),
        rules_source(actions, invariants),
        *map(_text_of, (*_functions_of(pages), *_functions_of(loop))),
    ]
    return _called_from_outside(ENTRY, parts)


def scanner_source() -> str:
    """The same of the scanner. It knows no rule and no field, so its text changes only with its code."""
    parts = [
        _layout_of(scan_layout, scan_layout.KeyArrays, scan_layout.ScannedArrays),
        *map(_text_of, _functions_of(scanner)),
    ]
    return _called_from_outside(SCAN, parts)


def _layout_of(module: ModuleType, *tuples: Any) -> str:
    """The constants of a layout. Attributes are compiled to places in the tuples, so other fields make another text."""
    fields = [f"# {t.__name__}: {', '.join(t._fields)}" for t in tuples]
    constants = [f"{name} = {value}" for name, value in vars(module).items() if name.isupper() and type(value) is int]
    return "\n".join([*fields, *constants]) + "\n"


def _called_from_outside(entry: str, parts: Iterable[str]) -> str:
    return "\n\n".join(parts).replace(f"@compiled\ndef {entry}(", f"@compiled_to_be_called\ndef {entry}(")


def _functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    return [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]


def _text_of(function: Callable[..., Any]) -> str:
    return "@compiled\n" + inspect.getsource(function)


def plain_judge(source: str, entry: str = ENTRY) -> Judge:
    """The same source run by Python: slow, and the same answers."""
    namespace: dict[str, Any] = {}
    exec(compile(_HEAD + _PLAIN + source, "<checker>", "exec"), namespace)
    return namespace[entry]


_sources: dict[tuple[int, ...], tuple[Any, str]] = {}


def source_of(actions: Mapping[str, Action], invariants: Mapping[str, Invariant]) -> str:
    """The same, traced once for the same actions and invariants."""
    rules = (*actions.values(), *invariants.values())
    key = tuple(map(id, rules))
    if key not in _sources:  # the rules stay there too, so that no other one gets the place of one of them
        _sources[key] = (rules, checker_source(actions, invariants))
    return _sources[key][1]


@functools.lru_cache(maxsize=8)
def compiled_judge(source: str) -> Judge:
    """The loop, compiled. The first call with a new source takes up to a minute, later ones load what was kept."""
    return _compiled(source, ENTRY)


@functools.cache
def compiled_scan() -> Scan:
    """The scanner of lines, compiled and kept in the same way: some seconds the first time."""
    return _compiled(scanner_source(), SCAN)


@functools.cache
def compiled_fill() -> Fill:
    """What fills rows from columns, compiled and kept in the same way."""
    entry = filler.fill_row.__name__
    return _compiled(_called_from_outside(entry, map(_text_of, _functions_of(filler))), entry)


def _compiled(source: str, entry: str) -> Callable[..., Any]:
    import numba

    text = _HEAD + _COMPILED + source
    versions = f"{sys.version} {numba.__version__}"
    digest = hashlib.sha256(f"{versions}\n{text}".encode()).hexdigest()[:32]
    name = f"kvproof_checker_{digest}"
    path = _kept(cache_folder() / name / f"{name}.py", text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba looks functions up by their module when it loads what it kept
    spec.loader.exec_module(module)
    return getattr(module, entry)


def _kept(path: Path, text: str) -> Path:
    """The file with this text. Where the cache cannot be written a folder for this process takes its place, and so it does where
    others could write: beside the file lies what numba compiled, which is loaded and run unseen."""
    try:
        require_ours(path.parent.parent)
        require_ours(path.parent)
        if not path.is_file() or path.read_text() != text:
            _write_whole(path, text)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="kvproof-")) / path.name
        _write_whole(path, text)
    return path


def _write_whole(path: Path, text: str) -> None:
    """Under another name first: whoever else starts now sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
