"""Builds the checker: the rules as machine code by LLVM, the page book and the loop by numba. Both are kept on disk.

The loop knows no rule: it is compiled once for all releases, in some seconds. The rules of a release are assembly
(`rules.py`), which takes a second. What is kept lies in a folder named after the hash of its text and of the versions that
compile it: a changed rule is a changed text, so nothing stale is ever run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kvproof.conformance.compiled import (
    book,
    filler,
    in_flight,
    layout,
    liveness,
    loop,
    next_events,
    pages,
    places,
    rule_calls,
)
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.conformance.compiled.rules import FUNCTIONS, RulesSource, rules_source
from kvproof.conformance.replay.batch_in_flight import may_begin
from kvproof.conformance.replay.liveness import has_room
from kvproof.conformance.replay.prefix_tree import may_have_a_copy
from kvproof.conformance.replay.window_book import reaches
from kvproof.model.cache_folder import cache_folder, require_ours
from kvproof.model.compiled.machine_code import host_processor, loaded, object_code, target_machine
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.batch import may_be_given
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.tree import is_continued, is_of_tokens, may_be_evicted

Fill = Callable[..., tuple[bool, int]]
Waits = Callable[[str], None]
"""Is called with what is waited for."""

_HEAD = '''"""Written by kvproof from its own functions; see kvproof.conformance.compiled.build."""
from __future__ import annotations
'''
_COMPILED = """
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Nothing is allocated, so nothing is counted: numba would count every use of an array, more than half of the time.
# All becomes one function: an array is handed over as seven numbers and more, which took half of what was left.
within = njit(error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
compiled_to_be_called = njit(error_model="numpy", _nrt=False, cache=True)


def compiled(function):
    # Once for all integers: numba would compile it anew for each width, and for each number that stands in a call.
    dispatcher = within(function)
    template = dispatcher.get_call_template

    def template_of_integers(arguments, keywords):
        return template(tuple(types.int64 if isinstance(a, types.Integer) else a for a in arguments), keywords)

    dispatcher.get_call_template = template_of_integers
    return dispatcher


@intrinsic
def call(context, address, arguments):
    def generate(context, builder, signature, values):
        of_function = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * len(arguments))
        function = builder.inttoptr(values[0], of_function.as_pointer())
        numbers = zip(cgutils.unpack_tuple(builder, values[1]), arguments)
        return builder.call(function, [context.cast(builder, n, t, types.int64) for n, t in numbers])

    return types.int64(address, arguments), generate


def loads(width, kind):
    @intrinsic
    def load(context, address, place):
        def generate(context, builder, signature, values):
            base, number = (context.cast(builder, v, t, types.int64) for v, t in zip(values, signature.args))
            pointer = builder.inttoptr(base, ir.IntType(width).as_pointer())
            return builder.load(builder.gep(pointer, [number]))

        return kind(address, place), generate

    return load


byte_at, number_at, wide_number_at = loads(8, types.uint8), loads(32, types.int32), loads(64, types.int64)
"""
LOOP = (
    rule_calls.ask,
    is_continued,
    is_of_tokens,
    may_be_evicted,
    may_be_given,
    may_begin,
    may_have_a_copy,
    has_room,
    reaches,
    book,
    places,
    pages,
    in_flight,
    liveness,
    next_events,
    loop,
)
"""What the loop is made of: functions, and modules with all of theirs."""
SECONDS = 12
"""About how long it takes to compile the loop, once on a machine."""
LEVEL = 2
"""Of LLVM, for the rules: compiled once on a machine, and run for every event."""


@dataclass(frozen=True)
class Judge:
    """Judges events in arrays by some rules."""

    loop: Callable[..., tuple[int, int]]
    functions: Array
    """int64[FUNCTIONS]: the addresses of the rules' functions."""
    about: Array
    """int64[actions, values]: see `StateArrays`."""
    machine_code: Any = field(repr=False)
    """What holds these functions in memory."""

    def __call__(self, first: int, last: int, events: EventArrays, state: StateArrays) -> tuple[int, int]:
        """Judge events first to last - 1; why it stopped, and the event at which it did."""
        return self.loop(first, last, events, state._replace(functions=self.functions, about=self.about))


_sources: dict[tuple[int, ...], tuple[Any, RulesSource]] = {}
"""What was printed of rules that were met, by their ids. The rules stay there, too: no other one gets the id of one of them."""


def the_judge(actions: Mapping[str, Action] = ACTIONS, waits: Waits = lambda _: None) -> Judge:
    """The compiled checker of these rules. `waits` is called where something has to be compiled, which is kept then."""
    key = tuple(map(id, (*actions.values(), *INVARIANTS.values())))
    if key not in _sources:
        _sources[key] = ((*actions.values(), *INVARIANTS.values()), rules_source(actions, INVARIANTS))
    return _judge(compiled_loop(waits), _sources[key][1])


def plain_judge(actions: Mapping[str, Action] = ACTIONS) -> Judge:
    """The loop run by Python: slow, and the same answers."""
    return _judge(_plain(loop_source(), loop.judge_events.__name__), rules_source(actions, INVARIANTS))


def _judge(judge_events: Callable[..., tuple[int, int]], rules: RulesSource) -> Judge:
    functions, machine_code = compiled_rules(rules.text)
    return Judge(judge_events, functions, np.array(rules.about, np.int64), machine_code)


def _plain(source: str, entry: str) -> Callable[..., Any]:
    same = {"compiled": lambda function: function, "compiled_to_be_called": lambda function: function}
    namespace: dict[str, Any] = {**same, "call": rule_calls.call}
    exec(compile(_HEAD + source, "<checker>", "exec"), namespace)
    return namespace[entry]


@functools.cache
def loop_source() -> str:
    """The page book and the loop as one text, with the numbers of `layout.py` in place of their names."""
    fields = [
        f"# {t.__name__}: {', '.join(t._fields)}" for t in (EventArrays, StateArrays)
    ]  # compiled to places in them
    return "\n\n".join([*fields, _source_of(LOOP, loop.judge_events.__name__)])


def _source_of(parts: Iterable[ModuleType | Callable[..., Any]], entry: str) -> str:
    text = "\n\n".join(text for part in parts for text in _texts_of(part))
    numbered = re.sub(r"\bat\.([A-Z_]+)\b", lambda name: str(getattr(layout, name[1])), text)
    return numbered.replace(f"@compiled\ndef {entry}(", f"@compiled_to_be_called\ndef {entry}(")


def _texts_of(part: ModuleType | Callable[..., Any]) -> list[str]:
    """The text of each function, to be compiled."""
    members = vars(part).values() if isinstance(part, ModuleType) else [part]
    own = [f for f in members if inspect.isfunction(f) and (f is part or f.__module__ == part.__name__)]
    return ["@compiled\n" + inspect.getsource(function) for function in own]


@functools.cache
def compiled_fill() -> Fill:
    """What fills arrays from columns, compiled and kept in the same way."""
    entry = filler.fill_columns.__name__
    return _compiled(_source_of([filler], entry), entry)


def compiled_loop(waits: Waits = lambda _: None) -> Callable[..., tuple[int, int]]:
    """The loop, compiled; `waits` is called where that is not kept yet."""
    judge_events: Any = _compiled_loop()
    if not judge_events.overloads and not any(Path(judge_events.stats.cache_path).glob("*.nbi")):
        waits(f"compiling the checker, about {SECONDS} s, once")
    return judge_events


@functools.cache
def _compiled_loop() -> Callable[..., tuple[int, int]]:
    return _compiled(loop_source(), loop.judge_events.__name__)


@functools.lru_cache(maxsize=16)
def compiled_rules(text: str, names: tuple[str, ...] = FUNCTIONS) -> tuple[Array, Any]:
    """The addresses of the rules' functions, and what keeps them in memory."""
    import llvmlite.binding as llvm

    machine = target_machine(LEVEL)
    digest = f"kvproof_rules_{_digest(str(llvm.llvm_version_info), machine.triple, *host_processor(), text)}"
    code = _kept_code(cache_folder() / digest / f"{digest}.o", lambda: object_code(text, machine, LEVEL))
    engine = loaded(code, machine)
    return np.array([engine.get_function_address(name) for name in names], np.int64), engine


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _compiled(source: str, entry: str) -> Callable[..., Any]:
    import numba

    text = _HEAD + _COMPILED + source
    name = f"kvproof_checker_{_digest(sys.version, numba.__version__, text)}"
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


def _kept_code(path: Path, make: Callable[[], bytes]) -> bytes:
    """What is in the file; made, and written if it can be, where there is none or others could have written it."""
    try:
        require_ours(path.parent.parent)
        require_ours(path.parent)
        if not path.is_file():
            _write_whole(path, make())
        return path.read_bytes()
    except OSError:
        return make()


def _write_whole(path: Path, text: str | bytes) -> None:
    """Under another name first: whoever else starts now sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, suffix=".part", delete=False) as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    Path(file.name).replace(path)
